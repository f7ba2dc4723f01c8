//! `.keras` archives: zip files with `config.json`, `metadata.json` and weights that are never read.
//!
//! keras/src/saving/saving_lib.py. Any zip with such a config will do, also in a folder of the archive.

use crate::container::{Text, bounded};
use memfit_graph::Problem;
use std::io::{Read, Seek};
use zip::ZipArchive;

/// Reads the config and the version.
pub(crate) fn config<R: Read + Seek>(reader: &mut R) -> Result<Text, Problem> {
    let damaged = |error: zip::result::ZipError| Problem::new("file", format!("a damaged archive: {error}"));
    let mut archive = ZipArchive::new(reader).map_err(damaged)?;
    let Some(name) = find(&archive, "config.json") else {
        let problem = Problem::new("file", "expected an archive with a config.json, found none in it");
        return Err(problem.hint("model.save(\"model.keras\") writes one"));
    };
    let json = read(&mut archive, &name)?;
    let metadata = name.strip_suffix("config.json").map(|folder| format!("{folder}metadata.json"));
    let metadata = metadata.filter(|m| archive.index_for_name(m).is_some());
    let metadata = metadata.map(|m| read(&mut archive, &m)).transpose()?;
    let metadata: Option<serde_json::Value> = metadata.and_then(|m| serde_json::from_slice(&m).ok());
    let version = metadata.and_then(|m| m.get("keras_version")?.as_str().map(str::to_owned));
    Ok(Text { json, version, training: None })
}

/// The entry of this name in the outermost folder that has one.
fn find<R: Read + Seek>(archive: &ZipArchive<R>, file: &str) -> Option<String> {
    let names = archive.file_names().filter(|n| n.rsplit('/').next() == Some(file));
    names.min_by_key(|n| (n.matches('/').count(), *n)).map(str::to_owned)
}

fn read<R: Read + Seek>(archive: &mut ZipArchive<R>, name: &str) -> Result<Vec<u8>, Problem> {
    let entry = archive
        .by_name(name)
        .map_err(|error| Problem::new(name, format!("cannot be read from the archive: {error}")))?;
    let said = entry.size();
    bounded(entry, name, said)
}
