//! `cargo xtask web`: the browser calculator. Builds the module here and hands it to `xtask/web`, which is only built when this
//! is asked for.

mod browser;

use crate::command::{cargo, program, root, shown, succeeds};
use crate::setup::{self, WASM};
use anyhow::{Result, bail};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Builds the site into web/dist and checks its size
    Build(Profile),
    /// Builds the site and serves it on this machine (the default)
    Serve(Serve),
    /// Tests the site in a browser and the npm package in Node, installing what they need
    Test(Profile),
    /// Builds the npm package into target/npm/memfit
    Npm,
}

#[derive(clap::Args, Default)]
struct Profile {
    /// Builds quickly, without making it small and fast
    #[arg(long)]
    dev: bool,
}

#[derive(clap::Args)]
struct Serve {
    #[command(flatten)]
    profile: Profile,
    /// The port; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// The path under which it is served, as on a host that has other sites too
    #[arg(long, default_value = "/")]
    base: String,
}

/// Runs a task; whether it succeeded.
pub(crate) fn run(options: &Options) -> Result<bool> {
    match &options.task {
        None => serve(&Serve { profile: Profile::default(), port: 8080, base: "/".into() }),
        Some(Task::Build(profile)) => site(profile.dev),
        Some(Task::Serve(options)) => serve(options),
        Some(Task::Test(profile)) => Ok(test(profile.dev)? != Verdict::Failed),
        Some(Task::Npm) => package(),
    }
}

/// How the tests went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// There is no browser, and why.
    Skipped,
}

/// Builds the site and the package and tests them.
pub(crate) fn test(dev: bool) -> Result<Verdict> {
    let tools = match browser::find() {
        Ok(tools) => tools,
        Err(why) => {
            println!("SKIPPED: the browser's tests did not run: {why:#}");
            return Ok(Verdict::Skipped);
        }
    };
    if !(site(dev)? && package()?) {
        return Ok(Verdict::Failed);
    }
    let mut built = cargo();
    built.args(["build", "--quiet", "--package", "memfit", "--package", "xtask-web"]);
    if !succeeds(&mut built)? {
        return Ok(Verdict::Failed);
    }
    let large = root().join("target/web/files/transformer.onnx");
    std::fs::create_dir_all(large.with_file_name(""))?;
    let mut model = cargo();
    model.args([
        "run",
        "--quiet",
        "--package",
        "memfit-bench-models",
        "--example",
        "transformer",
        "--",
        "2000",
    ]);
    if !succeeds(model.arg(&large))? {
        return Ok(Verdict::Failed);
    }
    let mut node = program("node");
    node.args(["--test", "--test-concurrency=1", "--test-reporter=spec"]).args(browser::tests()?);
    node.env("MEMFIT_CHROMIUM", &tools.chromium).env("MEMFIT_MODULES", &tools.modules);
    println!("{}", shown(&node));
    Ok(if succeeds(&mut node)? { Verdict::Passed } else { Verdict::Failed })
}

/// What the larger module has more.
const FULL: &[&str] = &["--features", "full"];

/// It is loaded when models are large too, so what an estimate runs is compiled for speed.
const FAST: &[&str] = &[
    "--config",
    "profile.web.package.memfit-engine.opt-level=3",
    "--config",
    "profile.web.package.memfit-graph.opt-level=3",
];

fn site(dev: bool) -> Result<bool> {
    // Both have the same name, so the first is moved away before the second is built.
    let Some(full) = module(&["build"], "memfit-web", &[FULL, FAST].concat(), dev)? else {
        return Ok(false);
    };
    let larger = full.with_file_name("memfit_full.wasm");
    std::fs::rename(&full, &larger)?;
    let Some(module) = module(&["build"], "memfit-web", &[], dev)? else { return Ok(false) };
    let Some(core) = core(dev)? else { return Ok(false) };
    let dist = root().join("web/dist");
    let paths = [module, larger, core, dist].map(PathBuf::into_os_string);
    let mut arguments: Vec<_> = std::iter::once("site".into()).chain(paths).collect();
    if dev {
        arguments.push("--unchecked".into());
    }
    helper(arguments)
}

/// The core alone, for the package and for pages that embed an estimate.
fn core(dev: bool) -> Result<Option<PathBuf>> {
    module(&["rustc"], "memfit-wasm", &["--features", "javascript", "--crate-type", "cdylib"], dev)
}

fn package() -> Result<bool> {
    let Some(module) = core(false)? else { return Ok(false) };
    helper(["package".into(), module.into_os_string(), root().join("target/npm/memfit").into_os_string()])
}

fn serve(options: &Serve) -> Result<bool> {
    if !site(options.profile.dev)? {
        return Ok(false);
    }
    let dist = root().join("web/dist").into_os_string();
    let port = options.port.to_string();
    helper(["serve".into(), dist, "--port".into(), port.into(), "--base".into(), options.base.clone().into()])
}

/// Builds a crate for the browser; where its module is, or nothing if it does not compile.
fn module(command: &[&str], package: &str, extra: &[&str], dev: bool) -> Result<Option<PathBuf>> {
    setup::wasm()?;
    let profile = if dev { "dev" } else { "web" };
    let mut build = cargo();
    build
        .args(command)
        .args(["--quiet", "--package", package, "--target", WASM, "--profile", profile])
        .args(extra);
    println!("{}", shown(&build));
    if !succeeds(&mut build)? {
        return Ok(None);
    }
    let folder = if dev { "debug" } else { "web" };
    let name = format!("{}.wasm", package.replace('-', "_"));
    let path = root().join("target").join(WASM).join(folder).join(name);
    if !path.exists() {
        bail!("{} was not built; is the target folder elsewhere?", path.display());
    }
    Ok(Some(path))
}

fn helper(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<bool> {
    let mut run = cargo();
    run.args(["run", "--quiet", "--package", "xtask-web", "--"]).args(arguments);
    succeeds(&mut run)
}
