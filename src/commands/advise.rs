//! `memfit advise`: what to change so that a step fits.

use crate::args::{AdviseArgs, Format};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{Finding, load, output};
use memfit_engine::advise::{Around, Code, advise as look};
use memfit_engine::{Aside, Verdict};
use memfit_report::advise as report;

/// Looks for changes and writes them as asked. The finding is about the step as it is.
pub(crate) fn advise(args: &AdviseArgs) -> Result<Finding, Failure> {
    args.plan.check()?;
    let mut card = args.gpu.card()?.ok_or_else(|| {
        Failure::new("--gpu", "expected the card that the step is to fit on")
            .hint("for example --gpu rtx-3060")
    })?;
    let loaded = load::load(&args.model)?;
    let usual = args.stack.framework(args.plan.framework())?;
    let usual = usual.map_or(loaded.usual(), |framework| loaded.usual().with(framework));
    let aside = Aside { life: args.life.life(), ..args.gpu.aside() };
    let (mut plan, mut warnings) = args.plan.plan(usual, aside)?;
    let release = args.stack.apply(&args.gpu, &mut card, &mut plan)?;
    let producer = loaded.model.producer.clone();
    let ready = loaded.bind(&args.model.sizes)?;
    warnings.splice(0..0, ready.notices(std::slice::from_ref(&plan)));
    warnings.extend(card.caveat().map(str::to_owned));
    let (weight_decay, clip_norm) = args.plan.numbers();
    let code = Code { release, weight_decay, clip_norm }.of_file(plan.framework, &producer);
    let around = Around { life: args.life.life(), code };
    let progress = Progress::new("looking for changes", 1);
    let advice = look(&ready.model, &ready.binding, &plan, &card, &around)
        .map_err(|problems| ready.failure(problems))?;
    drop(progress);
    output::print(&match args.format.format {
        Format::Json => report::json(&ready.name, &advice, &warnings),
        Format::Text => report::text(&ready.name, &advice, &warnings, args.code, output::width()),
    })?;
    Ok(Finding::fine_if(advice.now.verdict != Verdict::DoesNotFit))
}
