//! Values as they are typed: `seq=512`, `image:8x3x224x224`, `ids=1,2,3`. Each message says what was expected and found.

use memfit_report::Depth;

/// `NAME=N`.
pub(super) fn size(text: &str) -> Result<(String, u64), String> {
    let (name, number) = named(text, '=', "seq=512")?;
    Ok((name, whole(number)?))
}

/// A shape, of the named input or of the only one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputShape {
    pub(super) name: Option<String>,
    pub(super) dims: Vec<u64>,
}

/// `NAME:8x3x224x224` or `8x3x224x224`; commas may stand for the crosses, and nothing for a scalar. A name may have colons.
pub(super) fn shape(text: &str) -> Result<InputShape, String> {
    let (name, dims) = match text.rsplit_once(':') {
        Some(("", _)) => return Err("expected an input's name before `:`".into()),
        Some((name, dims)) => (Some(name.to_owned()), dims),
        None => (None, text),
    };
    let separators = ['x', 'X', ',', '×'];
    if !dims.chars().all(|c| c.is_ascii_digit() || separators.contains(&c)) {
        return Err(format!("expected NAME:SHAPE such as image:8x3x224x224, found `{text}`"));
    }
    let dims = match (dims, name.is_some()) {
        ("", true) => Vec::new(),
        _ => dims.split(separators).map(whole).collect::<Result<_, _>>()?,
    };
    Ok(InputShape { name, dims })
}

/// The elements of an input, not yet numbers: what they may be depends on its dtype.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputValue {
    pub(super) name: String,
    pub(super) elements: Vec<String>,
}

/// `NAME=1,2,3`; brackets and spaces are allowed, and nothing stands for no elements.
pub(super) fn value(text: &str) -> Result<InputValue, String> {
    let (name, list) = named(text, '=', "ids=1,2,3")?;
    let plain: String = list.chars().filter(|c| !matches!(c, '[' | ']') && !c.is_whitespace()).collect();
    let elements = plain.split(',').filter(|_| !plain.is_empty()).map(str::to_owned).collect();
    Ok(InputValue { name, elements })
}

/// A float that is neither negative nor endless.
pub(super) fn decay(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err(format!("expected a number such as 0.01 (0 is off), found `{text}`")),
    }
}

/// A number of path components, `auto` or `all`.
pub(super) fn depth(text: &str) -> Result<Depth, String> {
    match text {
        "auto" => Ok(Depth::Auto),
        "all" => Ok(Depth::All),
        n => match n.parse() {
            Ok(n) if n > 0 => Ok(Depth::At(n)),
            _ => Err(format!("expected a number from 1, `auto` or `all`, found `{text}`")),
        },
    }
}

/// A number of rows, or `all`.
pub(super) fn top(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(usize::MAX),
        n => match n.parse() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(format!("expected a number from 1 or `all`, found `{text}`")),
        },
    }
}

/// Splits at the last separator: names from files may have it too, numbers never do.
fn named<'a>(text: &'a str, separator: char, example: &str) -> Result<(String, &'a str), String> {
    match text.rsplit_once(separator) {
        Some((name, rest)) if !name.is_empty() => Ok((name.to_owned(), rest)),
        _ => Err(format!("expected a name, `{separator}` and a number such as {example}, found `{text}`")),
    }
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_take_names_with_colons_and_either_separator() {
        let of = |name: Option<&str>, dims: &[u64]| {
            Ok(InputShape { name: name.map(str::to_owned), dims: dims.to_vec() })
        };
        assert_eq!(shape("x:8x3x224x224"), of(Some("x"), &[8, 3, 224, 224]));
        assert_eq!(shape("serving:0:1,3"), of(Some("serving:0"), &[1, 3]));
        assert_eq!(shape("8x3"), of(None, &[8, 3]));
        assert_eq!(shape("x:"), of(Some("x"), &[]));
        assert_eq!(shape("x:0"), of(Some("x"), &[0]));
        for wrong in ["", ":1x2", "x:1xx2", "x:-1x2", "x:1x2x", "x:99999999999999999999", "x:batchx3"] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_what_was_expected() {
        assert_eq!(size("a=b=3"), Ok(("a=b".into(), 3)));
        assert!(size("seq").unwrap_err().contains("seq=512"));
        assert!(size("seq=-1").unwrap_err().contains("`-1`"));
        assert_eq!(value("v=[[1, 2],[3, 4]]").unwrap().elements, ["1", "2", "3", "4"]);
        assert!(value("v=").unwrap().elements.is_empty());
        assert!(decay("-0.1").is_err() && decay("nan").is_err() && decay("0").is_ok());
        assert!(depth("0").is_err() && depth("all") == Ok(Depth::All) && top("0").is_err());
    }
}
