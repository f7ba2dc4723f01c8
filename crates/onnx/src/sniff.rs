//! What a file that is no ONNX model looks like, so that the message can say it.

/// What the first bytes of a file say it is, with what to do about it; `None` where it may be an ONNX model.
pub(crate) fn not_a_model(head: &[u8]) -> Option<(String, String)> {
    let is = |what: &str, hint: &str| Some((what.to_owned(), hint.to_owned()));
    let has = |needle: &[u8]| head.windows(needle.len()).any(|w| w == needle);
    let trimmed = head.trim_ascii_start();
    let lower = trimmed.iter().take(64).map(u8::to_ascii_lowercase).collect::<Vec<_>>();
    match head {
        [] => return is("an empty file", "download or export it again"),
        [b'P', b'K', 3, 4, ..] if has(b"data.pkl") || has(b"/version") || has(b".data/serialization_id") => {
            return is(
                "a PyTorch checkpoint (.pt, .pth)",
                "it has weights, not the graph; write an ONNX file with torch.onnx.export",
            );
        }
        [b'P', b'K', 3, 4, ..] if has(b"metadata.json") || has(b"config.json") => {
            return is("a Keras archive (.keras)", "give it the ending .keras");
        }
        [b'P', b'K', 3 | 5, 4 | 6, ..] => {
            return is("a zip archive", "unpack it and give the .onnx file in it");
        }
        [0x89, b'H', b'D', b'F', ..] => {
            return is("an HDF5 file", "if it is a Keras model, give it the ending .h5");
        }
        [0x1f, 0x8b, ..] => return is("a gzip file", "unpack it first"),
        [b'G', b'G', b'U', b'F', ..] => return is("a GGUF file", "export the model to ONNX"),
        [0x80, 2..=5, ..] => return is("a Python pickle", "write an ONNX file with torch.onnx.export"),
        [_, _, _, _, b'T', b'F', b'L', b'3', ..] => {
            return is("a TensorFlow Lite model", "convert it with tf2onnx");
        }
        [_, _, _, _, _, _, _, 0, b'{', ..] => {
            return is("a safetensors file", "it has weights, not the graph; export the model to ONNX");
        }
        _ => {}
    }
    if trimmed.starts_with(b"version https://git-lfs") {
        return is("a Git LFS pointer, not the file it points to", "run `git lfs pull`");
    }
    if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
        return is("a web page", "the download gave a page instead of the file; look for its raw link");
    }
    let text = !head.contains(&0) && head.iter().all(|b| matches!(b, 9..=13 | 32..=126 | 128..));
    match trimmed.first() {
        None => is("white space only", "download or export it again"),
        Some(b'{' | b'[') if text => is("JSON", "if it is a Keras model, give it the ending .json"),
        Some(b'<') if text => is("XML or a web page", "the download gave a page instead of the file"),
        _ if text && std::str::from_utf8(head).is_ok() && head.len() > 16 => {
            is("text", "an ONNX model is a binary file; this is something else")
        }
        _ => None,
    }
}
