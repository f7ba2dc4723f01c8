//! Runs a model forward on the processor with given weights and inputs, and writes its outputs: what `models/reference/executor.py`
//! compares with onnxruntime.
//!
//! ```text
//! forward MODEL.onnx GIVEN OUTPUTS [NAME=SIZE]…
//! ```
//!
//! `batch=2` is every input's batch axis, other names are symbols. GIVEN has for each tensor its name, how many elements it has and
//! these, OUTPUTS the same without names; lengths are u32, elements f64, all little-endian. Exit code 3: it cannot be run, and standard error
//! says why.

use burn_ndarray::{NdArray, NdArrayDevice};
use memfit_engine::frameworks::burn::{Fill, program};
use memfit_engine::{Framework, Mode, Model, Plan};
use memfit_graph::{Binding, Problem, infer};
use memfit_validate::step::{Trainer, download};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::process::ExitCode;

type Backend = NdArray<f32>;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, given, outputs, sizes @ ..] = &words[..] else {
        return Err("forward MODEL GIVEN OUTPUTS".into());
    };
    let mut binding = Binding::default();
    for size in sizes {
        let (name, size) = size.split_once('=').ok_or("expected NAME=SIZE")?;
        match name {
            "batch" => binding.batch = Some(size.parse()?),
            name => drop(binding.symbols.insert(name.to_owned(), size.parse()?)),
        }
    }
    let refused = |problems: Vec<Problem>| {
        problems.iter().for_each(|problem| eprintln!("{problem}"));
        Ok(ExitCode::from(3))
    };
    let imported = match memfit_onnx::import_from(File::open(model)?) {
        Ok(imported) => imported,
        Err(problems) => return refused(problems),
    };
    let mut graph = imported.graph;
    graph.store_generated_weights();
    let model = Model::new(graph, model, "onnx", imported.operators);
    let plan = Plan { framework: Framework::Burn, mode: Mode::Infer, ..Plan::default() };
    let graph = model.recomposed(&plan);
    let written = infer(graph, &binding).and_then(|inferred| program(graph, &inferred, &plan));
    let program = match written {
        Ok(program) => program,
        Err(problems) => return refused(problems),
    };
    let mut named = read(&mut BufReader::new(File::open(given)?))?;
    let mut given = BTreeMap::new();
    for source in &program.sources {
        // The file's own name: recomposition finds better ones.
        let name = source.tensor.and_then(|id| model.graph().tensors.get(id.index())).map(|t| &t.name);
        // Recomposition's own are a file's with other axes.
        let name = name.map_or_else(|| source.name.trim_end_matches(".flat"), |name| &**name);
        match named.remove(name) {
            Some(elements) => drop(given.insert(source.name.to_string(), elements)),
            None if matches!(source.fill, Fill::Values(_)) => {}
            None => eprintln!("not given: {} {:?}", source.name, program.ty(source.slot).shape),
        }
    }
    let trainer = Trainer::<Backend>::new(&program, NdArrayDevice::Cpu, &given)?;
    let found =
        trainer.infer(&mut |_| {}).map_err(|stopped| format!("{}: {}", stopped.call, stopped.message))?;
    let mut file = BufWriter::new(File::create(outputs)?);
    for output in found {
        let elements = download::<Backend>(output.float()?).ok_or("an output cannot be read")?;
        file.write_all(&u32::try_from(elements.len())?.to_le_bytes())?;
        for element in elements {
            file.write_all(&f64::from(element).to_le_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All tensors of a file, by name.
fn read(file: &mut impl Read) -> Result<BTreeMap<String, Vec<f64>>, Box<dyn Error>> {
    let mut given = BTreeMap::new();
    loop {
        let mut length = [0; 4];
        match file.read_exact(&mut length) {
            Err(end) if end.kind() == ErrorKind::UnexpectedEof => return Ok(given),
            other => other?,
        }
        let mut name = vec![0; u32::from_le_bytes(length) as usize];
        file.read_exact(&mut name)?;
        file.read_exact(&mut length)?;
        let mut elements = vec![0; u32::from_le_bytes(length) as usize * 8];
        file.read_exact(&mut elements)?;
        let elements = elements.as_chunks::<8>().0.iter().map(|e| f64::from_le_bytes(*e)).collect();
        given.insert(String::from_utf8(name)?, elements);
    }
}
