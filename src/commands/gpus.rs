//! `memfit gpus`: the cards that memfit knows.

use crate::args::{Format, GpuListArgs};
use crate::failure::Failure;
use crate::output;
use memfit_engine::devices::{Device, LookupError, catalogue, find};
use memfit_report::gpus as report;

/// Lists the cards that a query means, or all.
pub(crate) fn gpus(args: &GpuListArgs) -> Result<(), Failure> {
    let query = args.query.join(" ");
    let cards = matching(&query)?;
    output::print(&match args.format.format {
        Format::Json => report::json(&cards),
        Format::Text => report::text(&cards, output::width()),
    })
}

/// Cards with every word in a name, however it is written; else the card that look-up finds.
fn matching(query: &str) -> Result<Vec<&'static Device>, Failure> {
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let words: Vec<String> =
        query.split([' ', '-', '_']).map(plain).filter(|word| !word.is_empty()).collect();
    let named = |card: &&Device| {
        let names = [&card.id, &card.name].into_iter().chain(&card.aliases).map(|n| plain(n));
        let all = names.collect::<Vec<_>>().join(" ");
        words.iter().all(|word| all.contains(word))
    };
    let found: Vec<&Device> = catalogue().iter().filter(named).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    match find(query) {
        Ok(card) => Ok(vec![card]),
        Err(LookupError::Ambiguous { ids, .. }) => Ok(ids.iter().filter_map(|id| find(id).ok()).collect()),
        Err(error) => Err(Failure::new("gpus", error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_finds_a_family_or_a_card() {
        let ids = |query: &str| -> Vec<&str> { matching(query).unwrap().iter().map(|c| &*c.id).collect() };
        assert!(ids("").len() > 100);
        assert_eq!(ids("a100"), ["a100-40gb", "a100-80gb"]);
        assert!(ids("RTX 3090").contains(&"rtx-3090-ti"));
        assert!(matching("voodoo").is_err());
    }
}
