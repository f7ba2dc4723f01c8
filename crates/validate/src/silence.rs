//! Panics that are results: not printed, and those of other threads kept.

use std::any::Any;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Arc, Mutex, PoisonError};

/// The first panic of another thread, while [`Silence`] lasts.
pub(crate) type Elsewhere = Arc<Mutex<Option<String>>>;

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

/// Lets no panic be printed while it lives, and keeps what other threads say. cubecl works in threads of its own: one that can't
/// have memory panics (cubecl-cuda 0.10, server.rs, `reserve(size).unwrap()`), and the step would go on without it.
pub(crate) struct Silence {
    before: Option<Hook>,
}

impl Silence {
    pub(crate) fn new(elsewhere: Elsewhere) -> Silence {
        let before = Some(take_hook());
        let own = std::thread::current().id();
        set_hook(Box::new(move |panic| {
            if std::thread::current().id() != own {
                let mut told = elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
                told.get_or_insert(said(panic.payload()));
            }
        }));
        Silence { before }
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.before.take().into_iter().for_each(set_hook);
    }
}

/// The words of a panic.
pub(crate) fn said(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    text.unwrap_or_else(|| "a panic".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_panic_of_another_thread_is_kept() {
        let elsewhere = Elsewhere::default();
        let silence = Silence::new(Arc::clone(&elsewhere));
        let others = std::thread::spawn(|| panic!("CUDA_ERROR_OUT_OF_MEMORY")).join();
        let own = catch_unwind(|| panic!("here"));
        drop(silence);
        assert!(others.is_err() && own.is_err());
        assert_eq!(elsewhere.lock().unwrap().as_deref(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
    }
}
