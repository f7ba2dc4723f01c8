//! Which card the step runs on, and what else is there: from flags to a [`Card`].

use super::{stack, typed};
use crate::failure::Failure;
use crate::{host, text};
use clap::Args;
use memfit_engine::devices::{Card, Generation, catalogue};
use memfit_engine::{Aside, Framework, Plan, Word};
use memfit_graph::Bytes;
use memfit_validate::calibrate::DeviceProfile;
use std::path::{Path, PathBuf};

const HEADING: &str = "The GPU";

/// One card.
#[derive(Args, Debug)]
pub(crate) struct GpuArgs {
    /// The card, for a verdict: a name (rtx-3090), a size (24GiB), a MIG slice (a100-40gb:3g.20gb), or `auto` for this host's
    #[arg(long, value_name = "NAME|SIZE|auto", help_heading = HEADING)]
    gpu: Option<String>,
    #[command(flatten)]
    others: OthersArgs,
}

/// What else is on a card.
#[derive(Args, Debug)]
pub(crate) struct OthersArgs {
    /// What other processes hold of it: 1.5GiB
    #[arg(long, value_name = "SIZE", value_parser = typed::memory, help_heading = HEADING)]
    other_processes: Option<Bytes>,
    /// It drives a display too
    #[arg(long, help_heading = HEADING)]
    display: bool,
    /// What memfit calibrate wrote of a card: its context, scratch memory and slack; without --gpu it is that card
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    device_profile: Option<PathBuf>,
}

impl OthersArgs {
    /// The cards that were named, else the one that the profile was made on, each with what else is there.
    fn on(&self, mut cards: Vec<Card>) -> Result<Vec<Card>, Failure> {
        if let Some(profile) = self.profile()? {
            self.measure(&mut cards, &profile)?;
        }
        for card in &mut cards {
            card.other_processes = self.other_processes.unwrap_or(card.other_processes);
            card.display |= self.display;
        }
        Ok(cards)
    }

    /// Gives the profile to the card that it was made on, and to one of which no more than the size is said.
    fn measure(&self, cards: &mut Vec<Card>, profile: &DeviceProfile) -> Result<(), Failure> {
        let own = match self.profiled(profile) {
            Ok(card) => {
                let id = card.device.id.clone();
                if cards.is_empty() {
                    cards.push(card);
                }
                id
            }
            Err(failure) if cards.is_empty() => return Err(failure),
            Err(_) => String::new(),
        };
        let whole = |card: &Card| card.device.id.split(':').next().unwrap_or_default().to_owned();
        let measured = profile.engine().map_err(|message| self.wrong(message))?;
        let mut taken = false;
        for card in cards
            .iter_mut()
            .filter(|card| card.device.generation == Generation::Unknown || whole(card) == own)
        {
            card.profile = Some(measured);
            taken = true;
        }
        if taken {
            return Ok(());
        }
        let failure =
            self.wrong(format!("it was made on `{}`, which is none of these cards", profile.device));
        Err(failure.hint("leave it out, or name its card with --gpu"))
    }

    /// The card that the profile was made on.
    fn profiled(&self, profile: &DeviceProfile) -> Result<Card, Failure> {
        let size = profile.device_total_bytes.map(|bytes| format!("{}MiB", bytes >> 20));
        let known = [Some(profile.device.clone()), size].into_iter().flatten();
        known.flat_map(|name| Card::find(&name)).next().ok_or_else(|| {
            self.wrong(format!("no card is known as `{}`", profile.device)).hint("name it with --gpu")
        })
    }

    fn profile(&self) -> Result<Option<DeviceProfile>, Failure> {
        let Some(path) = &self.device_profile else { return Ok(None) };
        let text = text::read(path).map_err(|e| self.wrong(format!("cannot be read: {e}")))?;
        DeviceProfile::read(&text)
            .map(Some)
            .map_err(|message| self.wrong(message).hint("memfit calibrate writes one"))
    }

    fn wrong(&self, message: impl Into<String>) -> Failure {
        let path = self.device_profile.as_deref().unwrap_or(Path::new(""));
        Failure::new(format!("--device-profile {}", path.display()), message)
    }
}

/// What runs on a host.
#[derive(Args, Debug, Default)]
pub(crate) struct StackArgs {
    /// What runs on the card: torch 1.12, eager-loading, cudnn-benchmark, expandable-segments, memory-growth, limit 4GiB, …
    #[arg(long, value_name = "WORD,…", requires = "gpu", help_heading = HEADING)]
    stack: Option<String>,
}

impl StackArgs {
    /// The framework that runs there, where it is said; it is no other than the one that was typed.
    pub(crate) fn framework(&self, typed: Option<Framework>) -> Result<Option<Framework>, Failure> {
        let said = self.stack.as_deref().and_then(stack::framework);
        if let (Some(said), Some(typed)) = (said, typed)
            && said != typed
        {
            let message = format!("`{}` is another framework than --framework {}", said.name(), typed.name());
            return Err(Failure::new("--stack", message).hint("leave one of the two out"));
        }
        Ok(said)
    }

    /// Changes a card and a plan by it, and gives the framework's release where it names one. What a flag says already is not
    /// said otherwise.
    pub(crate) fn apply(
        &self,
        gpu: &GpuArgs,
        card: &mut Card,
        plan: &mut Plan,
    ) -> Result<Option<(u32, u32)>, Failure> {
        let Some(words) = &self.stack else { return Ok(None) };
        let allocator = &plan.allocator;
        let flags: [(&str, bool, &[&str]); 3] = [
            ("--other-processes", gpu.others.other_processes.is_some(), &["others", "other-processes"]),
            ("--memory-fraction", allocator.memory_fraction.is_some(), &["fraction"]),
            ("--memory-limit", allocator.memory_limit.is_some(), &["limit"]),
        ];
        for (flag, typed, names) in flags {
            if let Some(word) = stack::says(words, names).filter(|_| typed) {
                let failure = Failure::new("--stack", format!("`{word}` is what {flag} says, too"));
                return Err(failure.hint("leave one of the two out"));
            }
        }
        stack::apply(words, card, plan)?;
        Ok(stack::release(words))
    }
}

/// A second host to compare with.
#[derive(Args, Debug, Default)]
pub(crate) struct HostsArgs {
    #[command(flatten)]
    stack: StackArgs,
    /// A second host, component by component: --vs 'gtx-1080-ti, torch 1.12, display, others 1GiB'
    #[arg(long, value_name = "NAME, WORD,…", requires = "gpu", help_heading = HEADING)]
    vs: Option<String>,
}

impl HostsArgs {
    /// The framework that runs on the first host, where it is said.
    pub(crate) fn framework(&self, typed: Option<Framework>) -> Result<Option<Framework>, Failure> {
        self.stack.framework(typed)
    }

    /// What `--stack` says of the first host.
    pub(crate) fn first(
        &self,
        gpu: &GpuArgs,
        card: &mut Option<Card>,
        plan: &mut Plan,
    ) -> Result<(), Failure> {
        card.as_mut().map_or(Ok(()), |card| self.stack.apply(gpu, card, plan).map(drop))
    }

    /// The second host: its card, and the plan as it runs there, from what the plan is under the framework that is said to run
    /// there.
    pub(crate) fn second(
        &self,
        plan: impl FnOnce(Option<Framework>) -> Result<Plan, Failure>,
    ) -> Result<Option<(Card, Plan)>, Failure> {
        let Some(text) = &self.vs else { return Ok(None) };
        let (name, words) = text.split_once(',').unwrap_or((text, ""));
        let (mut card, mut plan) = (named("--vs", name)?, plan(stack::framework(words))?);
        stack::apply(words, &mut card, &mut plan)?;
        Ok(Some((card, plan)))
    }
}

/// A card by its name, or this host's.
fn named(flag: &str, name: &str) -> Result<Card, Failure> {
    if name.trim().eq_ignore_ascii_case("auto") {
        return host::card();
    }
    Card::find(name.trim()).map_err(|error| {
        Failure::new(format!("{flag} {name}"), error.to_string()).hint("memfit gpus lists them all")
    })
}

impl GpuArgs {
    /// The card, where one is asked for.
    pub(crate) fn card(&self) -> Result<Option<Card>, Failure> {
        let card = self.gpu.as_deref().map(|name| named("--gpu", name)).transpose()?;
        self.others.on(card.into_iter().collect()).map(|cards| cards.into_iter().next())
    }

    /// The files that are named.
    pub(crate) fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.others.device_profile.iter_mut()
    }

    /// What these flags say that bears on a plan.
    pub(crate) fn aside(&self) -> Aside {
        let card = self.gpu.is_some() || self.others.device_profile.is_some();
        let others = self.others.other_processes.is_some() || self.others.display;
        Aside { card, others, ..Aside::default() }
    }
}

/// Several cards.
#[derive(Args, Debug)]
pub(crate) struct GpusArgs {
    /// The cards: names, sizes or MIG slices with commas between them, `auto` for this host's, `all` for every NVIDIA card
    #[arg(long, value_name = "NAME,…|all", required_unless_present = "device_profile", value_delimiter = ',', help_heading = HEADING)]
    gpu: Vec<String>,
    #[command(flatten)]
    others: OthersArgs,
}

impl GpusArgs {
    /// The cards, in the order in which they are named.
    pub(crate) fn cards(&self) -> Result<Vec<Card>, Failure> {
        let mut cards: Vec<Card> = Vec::new();
        for name in &self.gpu {
            let found = if name.trim().eq_ignore_ascii_case("all") {
                let nvidia = catalogue().iter().filter(|card| card.compute_capability.is_some());
                nvidia.map(|card| named("--gpu", &card.id)).collect::<Result<_, _>>()?
            } else {
                vec![named("--gpu", name)?]
            };
            let known: Vec<String> = cards.iter().map(|card| card.device.id.clone()).collect();
            cards.extend(found.into_iter().filter(|card| !known.contains(&card.device.id)));
        }
        self.others.on(cards)
    }
}
