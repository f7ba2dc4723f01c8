//! `memfit gpus`.

use crate::memfit;

#[test]
fn a_query_narrows_the_list() {
    let all = memfit(&["gpus", "--format", "json"]);
    assert_eq!((all.code, &*all.err), (0, ""));
    assert!(all.json()["gpus"].as_array().unwrap().len() > 100);
    let some = memfit(&["gpus", "a100", "--format", "json"]).json();
    let ids: Vec<&str> = some["gpus"].as_array().unwrap().iter().map(|g| g["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a100-40gb", "a100-80gb"]);
    let text = memfit(&["gpus", "rtx", "3090"]);
    assert!(text.out.contains("rtx-3090-ti") && text.out.contains("24,121"), "{}", text.out);
    let none = memfit(&["gpus", "voodoo"]);
    assert_eq!((none.code, &*none.out), (2, ""));
}
