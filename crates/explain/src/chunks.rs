//! Cuts a log into chunks of whole lines and finds the words that matter in several of them at once; the chunks come out in order.
//!
//! Reading the lines must know what came before, finding the words in them need not, and takes more of the time. Memory is a few
//! chunks, however many threads the machine has.

use crate::decode::Text;
use crate::line::LINE;
use crate::pieces::{Hit, Pieces};
use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// Bytes of a chunk, at most.
pub(crate) const CHUNK: usize = 1 << 20;
/// Bytes kept from before, to look back in.
pub(crate) const BEHIND: usize = 1 << 16;
/// Threads that search, at most.
const THREADS: usize = 4;

/// A part of a log.
#[derive(Default)]
pub(crate) struct Chunk {
    /// Its bytes, those before it to look back in, and the start of what comes next.
    pub(crate) bytes: Vec<u8>,
    /// Where it begins and ends: with a line, unless that is longer than a chunk.
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Where words that matter stand in the bytes from `from` on.
    pub(crate) hits: Vec<Hit>,
}

impl Chunk {
    fn search(&mut self) {
        static PIECES: OnceLock<Pieces> = OnceLock::new();
        let pieces = PIECES.get_or_init(Pieces::new);
        self.hits.clear();
        let mut at = self.from;
        while let Some(hit) = pieces.next(&self.bytes, at) {
            at = hit.at + 1;
            self.hits.push(hit);
        }
    }
}

/// Gives the chunks of a log to `take`, in order.
///
/// # Errors
/// What the reader reports.
pub(crate) fn each(reader: impl Read + Send, mut take: impl FnMut(&Chunk)) -> io::Result<()> {
    let mut chunks = Chunks { reader: Text::new(reader)?, rest: Vec::new(), behind: 0, last: false };
    // Where there are no threads, as in a browser, that is an error.
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get().min(THREADS));
    let mut chunk = Chunk::default();
    while chunks.next(&mut chunk)? {
        chunk.search();
        take(&chunk);
        if threads > 1 {
            break;
        }
    }
    if chunks.last {
        return Ok(());
    }
    let (queue, found) = mpsc::sync_channel(threads);
    let (free, spare) = mpsc::channel();
    // Used again, as every chunk; the other end is there.
    let _ = free.send(chunk);
    let source = Arc::new(Mutex::new(Source { chunks, queue, spare }));
    thread::scope(|scope| {
        for _ in 0..threads {
            let source = Arc::clone(&source);
            scope.spawn(move || search(&source));
        }
        drop(source);
        for searched in found {
            // Nothing comes from a search that panicked; the scope panics, too.
            let Ok(chunk) = searched.recv() else { break };
            let chunk = chunk?;
            take(&chunk);
            // Nobody needs it at the end.
            let _ = free.send(chunk);
        }
        Ok(())
    })
}

/// A chunk that is still searched.
type Searched = Receiver<io::Result<Chunk>>;

/// Where the threads take chunks from, and in which order they give them back.
struct Source<R> {
    chunks: Chunks<R>,
    queue: SyncSender<Searched>,
    spare: Receiver<Chunk>,
}

/// Searches chunks until there are no more, or nobody wants them.
fn search<R: Read>(source: &Mutex<Source<R>>) {
    loop {
        // A reader that panicked may give anything; the scope panics after it.
        let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
        let mut chunk = source.spare.try_recv().unwrap_or_default();
        let read = source.chunks.next(&mut chunk);
        if let Ok(false) = read {
            return;
        }
        let (found, searched): (Sender<_>, Searched) = mpsc::channel();
        if source.queue.send(searched).is_err() {
            return;
        }
        drop(source);
        let failed = read.is_err();
        let _ = found.send(read.map(|_| {
            chunk.search();
            chunk
        }));
        if failed {
            return;
        }
    }
}

/// The chunks of a log.
struct Chunks<R> {
    reader: Text<R>,
    /// The end of what was read: what is before the next chunk, and its start.
    rest: Vec<u8>,
    /// How much of that is before.
    behind: usize,
    /// Whether nothing comes any more.
    last: bool,
}

impl<R: Read> Chunks<R> {
    /// Reads the next chunk into one that may have been used; false if there is none.
    fn next(&mut self, chunk: &mut Chunk) -> io::Result<bool> {
        let Chunk { bytes, from, to, .. } = chunk;
        *from = self.behind;
        // New memory is zero without being written.
        match bytes.is_empty() {
            true => *bytes = vec![0; BEHIND + CHUNK],
            false => bytes.resize(BEHIND + CHUNK, 0),
        }
        let mut end = self.rest.len();
        bytes[..end].copy_from_slice(&self.rest);
        while end < bytes.len() && !self.last {
            match self.reader.read(&mut bytes[end..]) {
                Ok(count) => {
                    end += count;
                    self.last = count == 0;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(end);
        let line = memchr::memrchr2(b'\n', b'\r', &bytes[*from..]).map_or(0, |at| *from + at + 1);
        *to = match self.last {
            true => end,
            // Of a line that fills much of it most is read, the rest with what comes.
            false if end - line > CHUNK / 2 => end - LINE,
            false => line,
        };
        let keep = to.saturating_sub(BEHIND);
        self.rest.clear();
        self.rest.extend_from_slice(&bytes[keep..]);
        self.behind = *to - keep;
        Ok(*to > *from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte less each time, so that reads end anywhere.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = self.1.saturating_sub(1).max(1 << 12);
            let len = buffer.len().min(self.1);
            self.0.read(&mut buffer[..len])
        }
    }

    #[test]
    fn chunks_are_the_log_in_order() {
        let line = |i: usize| format!("{i} {}\n", "x".repeat(i * 37 % 400));
        let log: String = (0..20_000).map(line).chain(["y".repeat(3 << 20), "the end".into()]).collect();
        let mut read = Vec::new();
        let mut ends = Vec::new();
        each(Slow(log.as_bytes(), 1 << 17), |chunk| {
            assert!(chunk.bytes[..chunk.from] == read[read.len() - chunk.from..]);
            assert!(chunk.from == read.len().min(BEHIND));
            read.extend_from_slice(&chunk.bytes[chunk.from..chunk.to]);
            ends.push(read.ends_with(b"\n"));
        })
        .unwrap();
        assert!(read == log.as_bytes());
        assert_eq!(ends[..4], [true; 4], "a chunk ends with a line");
        assert!(ends.len() > 6 && !ends[4..].contains(&true), "a longer line is read in parts: {ends:?}");
    }

    #[test]
    fn an_error_of_the_reader_ends_it() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::TimedOut.into())
            }
        }
        let log = "step\n".repeat(1 << 20);
        let mut chunks = 0;
        let error = each(log.as_bytes().chain(Broken), |_| chunks += 1).unwrap_err();
        assert_eq!((error.kind(), chunks), (io::ErrorKind::TimedOut, 4));
    }
}
