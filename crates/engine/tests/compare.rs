//! Two hosts compared on a real model: the account re-adds, and names what changed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::compare::{Component, Side, components};
use memfit_engine::devices::Card;
use memfit_engine::{Framework, Model, Plan};
use memfit_graph::{Binding, Bytes};

fn account(plan: &Plan, hosts: [&Card; 2]) -> Vec<Component> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/resnet18.ts_train.onnx");
    let imported = memfit_onnx::import(&std::fs::read(path).unwrap()).unwrap();
    let model = Model::new(imported.graph, "resnet18", "onnx", imported.operators);
    let binding = Binding { batch: Some(16), ..Binding::default() };
    let [this, that] = hosts.map(|card| model.estimate_on(&binding, plan, Some(card)).unwrap());
    components(&this, &that)
}

fn sums(account: &[Component]) {
    for of in [|c: &Component| c.this, |c: &Component| c.that] {
        let sum = |side| account.iter().filter(|c| c.side == side).map(of).sum::<Bytes>();
        assert_eq!(sum(Side::Has), sum(Side::Off) + sum(Side::Usable));
        assert_eq!(sum(Side::Needs), sum(Side::Reserved));
    }
}

#[test]
fn the_account_re_adds_and_names_what_grew() {
    let old = Card::find("gtx-1080-ti").unwrap();
    let mut new = Card::find("rtx-3060").unwrap();
    new.eager_loading = true;
    let account = account(&Plan::default(), [&old, &new]);
    sums(&account);
    let line = |name: &str| account.iter().find(|c| c.name == name).unwrap();
    assert_eq!(line("kernels loaded at once").this, Bytes::ZERO);
    assert!(line("kernels loaded at once").worse() > 300 << 20 && line("total of the card").worse() < 0);
}

#[test]
fn tensorflow_leaves_more_to_the_system_on_a_newer_card() {
    let plan = Plan { framework: Framework::Tensorflow, ..Plan::default() };
    let cards = ["gtx-1080-ti", "rtx-3060"].map(|name| Card::find(name).unwrap());
    let account = account(&plan, [&cards[0], &cards[1]]);
    sums(&account);
    let system = account.iter().find(|c| c.name == "left to the system by the framework").unwrap();
    assert!(system.worse() > 0, "{system:?}");
}
