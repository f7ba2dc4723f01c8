//! The lines of code that advice gives are Python, for every release that they are written for.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::advise::{Api, Release, examples};
use rustpython_parser::{Mode, parse};

const PYTORCH: &[Option<Release>] =
    &[None, Some((1, 6)), Some((1, 10)), Some((1, 13)), Some((2, 0)), Some((2, 4)), Some((2, 9))];
const TENSORFLOW: &[Option<Release>] = &[None, Some((1, 15)), Some((2, 2)), Some((2, 10)), Some((2, 16))];

#[test]
fn snippets_are_python() {
    for (api, releases) in
        [(Api::Pytorch, PYTORCH), (Api::Tensorflow, TENSORFLOW), (Api::KerasOnPytorch, &PYTORCH[4..])]
    {
        for release in releases {
            let all = examples(api, *release);
            assert!(all.len() > 10, "{api:?} {release:?}");
            for (name, text) in all {
                parse(&text, Mode::Module, name)
                    .unwrap_or_else(|e| panic!("{name} {release:?}: {e}\n{text}"));
            }
        }
    }
}
