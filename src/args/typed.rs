//! Values as they are typed: `seq=512`, `image:8x3x224x224`, `ids=1,2,3`. Each message says what was expected and found.

use memfit_engine::allocators::PytorchAllocatorConfig;
use memfit_engine::devices::parse_size;
use memfit_graph::Bytes;
use memfit_keras::Custom;
use memfit_report::Depth;
use std::str::FromStr;

/// `NAME=N`.
pub(super) fn size(text: &str) -> Result<(String, u64), String> {
    let (name, number) = named(text, '=', "seq=512")?;
    Ok((name, whole(number)?))
}

/// What is given of the named input, or of the only one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Input {
    pub(super) name: Option<String>,
    pub(super) given: Given,
}

/// The shape of an input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    /// Of a tensor.
    Shape(Vec<u64>),
    /// Of each item of a sequence.
    Items(Vec<Vec<u64>>),
    /// An optional without a value.
    Absent,
}

/// `NAME:8x3x224x224` or `8x3x224x224`; commas may stand for the crosses, and nothing for a scalar. A name may have colons.
/// `NAME:[40x30,20x10]` is a sequence of two, `NAME:absent` an optional without a value.
pub(super) fn input(text: &str) -> Result<Input, String> {
    let (name, shape) = match text.rsplit_once(':') {
        Some(("", _)) => return Err("expected an input's name before `:`".into()),
        Some((name, shape)) => (Some(name.to_owned()), shape),
        None => (None, text),
    };
    let items = shape.strip_prefix('[').and_then(|s| s.strip_suffix(']'));
    let given = match (items, shape) {
        (Some(""), _) => Given::Items(Vec::new()),
        (Some(items), _) => {
            Given::Items(items.split(',').map(|i| dims(i, &['x'])).collect::<Result<_, _>>()?)
        }
        (None, "absent") => Given::Absent,
        (None, "") if name.is_some() => Given::Shape(Vec::new()),
        (None, shape) => Given::Shape(dims(shape, &['x', ','])?),
    };
    Ok(Input { name, given })
}

fn dims(text: &str, separators: &[char]) -> Result<Vec<u64>, String> {
    let plain = text.trim().replace(['X', '×'], "x");
    if plain == "scalar" {
        return Ok(Vec::new());
    }
    let dims = plain.split(separators).map(|dim| dim.parse().ok()).collect::<Option<_>>();
    dims.ok_or_else(|| format!("expected NAME:SHAPE such as image:8x3x224x224, found `{text}` for a shape"))
}

/// `NAME:shape=7x7x64,params=1000,state=2`: what a Keras file does not say of a custom layer.
pub(super) fn layer(text: &str) -> Result<(String, Custom), String> {
    let expected = || format!("expected NAME:shape=7x7x64,params=1000,state=2, found `{text}`");
    let (name, rest) = text.rsplit_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(expected)?;
    let mut custom = Custom::default();
    for part in rest.split(',') {
        match part.split_once('=').ok_or_else(expected)? {
            ("shape", shape) => custom.shape = Some(dims(shape, &['x'])?),
            ("params", n) => custom.params = Some(whole(n)?),
            ("state", n) => custom.state = Some(whole(n)?),
            _ => return Err(expected()),
        }
    }
    Ok((name.to_owned(), custom))
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

/// A whole number from 1.
pub(super) fn count<N: FromStr + Default + PartialEq>(text: &str) -> Result<N, String> {
    let number = text.parse().ok().filter(|n| *n != N::default());
    number.ok_or_else(|| format!("expected a whole number from 1, found `{text}`"))
}

/// A whole number from 0.
pub(super) fn from_zero(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0, found `{text}`"))
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number, found `{text}`"))
}

/// An amount of memory with its unit; `0` is none.
pub(crate) fn memory(text: &str) -> Result<Bytes, String> {
    if text.trim() == "0" {
        return Ok(Bytes::ZERO);
    }
    parse_size(text).ok_or_else(|| format!("expected a size with its unit such as 1.5GiB, found `{text}`"))
}

/// A part of a whole, in thousandths.
pub(super) fn thousandths(text: &str) -> Result<u32, String> {
    let share: Option<f64> = text.parse().ok().filter(|x| *x > 0.0 && *x <= 1.0);
    // Between 0 and 1, so that nothing is cut off.
    share.map(|x| (x * 1000.0).round().max(1.0) as u32).ok_or_else(|| {
        // TensorFlow: common_runtime/gpu/gpu_device.cc, `SingleVirtualDeviceMemoryLimit`, and gpu_process_state.cc.
        let unified = text.parse().is_ok_and(|x: f64| x > 1.0);
        let why = if unified {
            ": above 1 TensorFlow takes unified memory, which lies on the host where the card is full"
        } else {
            ""
        };
        format!("expected a number above 0 and at most 1, found `{text}`{why}")
    })
}

/// What `PYTORCH_ALLOC_CONF` holds.
pub(super) fn allocator_conf(text: &str) -> Result<PytorchAllocatorConfig, String> {
    PytorchAllocatorConfig::default().apply(text).map_err(|error| {
        let own = text.to_ascii_lowercase().contains("cudamallocasync");
        let hint = if own { "; use --cuda-malloc-async" } else { "" };
        format!("{error}{hint}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_take_names_with_colons_and_either_separator() {
        let of = |name: Option<&str>, given: Given| Ok(Input { name: name.map(str::to_owned), given });
        let shape = |dims: &[u64]| Given::Shape(dims.to_vec());
        assert_eq!(input("x:8x3x224x224"), of(Some("x"), shape(&[8, 3, 224, 224])));
        assert_eq!(input("serving:0:1,3"), of(Some("serving:0"), shape(&[1, 3])));
        assert_eq!(input("8x3"), of(None, shape(&[8, 3])));
        assert_eq!(input("x:"), of(Some("x"), shape(&[])));
        assert_eq!(input("x:0"), of(Some("x"), shape(&[0])));
        assert_eq!(input("x:[4x3,scalar]"), of(Some("x"), Given::Items(vec![vec![4, 3], Vec::new()])));
        assert_eq!(input("x:[]"), of(Some("x"), Given::Items(Vec::new())));
        assert_eq!(input("x:absent"), of(Some("x"), Given::Absent));
        for wrong in [
            "",
            ":1x2",
            "x:1xx2",
            "x:-1x2",
            "x:1x2x",
            "x:99999999999999999999",
            "x:batchx3",
            "x:[1",
            "x:[1,]",
        ] {
            assert!(input(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_custom_layer_has_a_shape_and_counts() {
        let (name, custom) = layer("block:0:shape=7x7x64,params=1000").unwrap();
        assert_eq!(
            (&*name, custom.shape, custom.params, custom.state),
            ("block:0", Some(vec![7, 7, 64]), Some(1000), None)
        );
        assert_eq!(layer("s:shape=scalar").unwrap().1.shape, Some(Vec::new()));
        for wrong in ["s", "s:", ":params=1", "s:params", "s:params=x", "s:weight=3", "s:shape=ax3"] {
            assert!(layer(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_what_was_expected() {
        assert_eq!(size("a=b=3"), Ok(("a=b".into(), 3)));
        assert!(size("seq").unwrap_err().contains("seq=512"));
        assert!(size("seq=-1").unwrap_err().contains("`-1`"));
        assert_eq!(value("v=[[1, 2],[3, 4]]").unwrap().elements, ["1", "2", "3", "4"]);
        assert!(value("v=").unwrap().elements.is_empty());
        assert_eq!((count::<u64>("8"), from_zero("0")), (Ok(8), Ok(0)));
        assert!(count::<u32>("0").unwrap_err().contains("from 1, found `0`"));
        assert!(decay("-0.1").is_err() && decay("nan").is_err() && decay("0").is_ok());
        assert!(depth("0").is_err() && depth("all") == Ok(Depth::All) && top("0").is_err());
    }
}
