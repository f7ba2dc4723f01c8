//! A search for many words at once: with vector instructions, where the machine has them.

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, Input, Match, MatchKind, Span};

/// Finds words, and of those at one place the first.
pub(crate) enum Search {
    Packed(Searcher),
    Automaton(AhoCorasick),
}

impl Search {
    pub(crate) fn new(words: &[&'static str]) -> Search {
        Searcher::new(words).map_or_else(|| Search::automaton(words), Search::Packed)
    }

    pub(crate) fn automaton(words: &[&'static str]) -> Search {
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(words);
        Search::Automaton(automaton.unwrap_or_else(|_| unreachable!("the words are constants")))
    }

    /// The first word that begins at `from` or after it.
    pub(crate) fn find(&self, bytes: &[u8], from: usize) -> Option<Match> {
        let span = Span::from(from..bytes.len());
        match self {
            Search::Packed(search) => search.find_in(bytes, span),
            Search::Automaton(search) => search.find(Input::new(bytes).span(span)),
        }
    }
}
