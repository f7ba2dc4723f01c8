//! Sizes as logs print them: `20.00 MiB`, `10.76G (11551965184 bytes)`, `4.00GiB`, `8,000,000,000 bytes`.
//!
//! Every framework here counts 1024 to the unit, also where it writes `GB` (c10's `format_size`, ATen/mps `format_size`,
//! TensorFlow's `strings::HumanReadableNumBytes`, the Linux kernel's `kB`).

use crate::line::place;
use memfit_graph::Bytes;

/// The size at the beginning of `text`, after spaces.
pub(crate) fn size(text: &str) -> Option<Bytes> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let number = number.trim_end_matches(['.', ',']);
    let unit = rest.trim_start();
    let unit: String = unit.chars().take_while(char::is_ascii_alphabetic).collect();
    let shift = match unit.to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    scaled(number, shift)
}

/// A plain count of bytes at the beginning of `text`.
pub(crate) fn count(text: &str) -> Option<Bytes> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    text[..end].replace(',', "").parse().ok().map(Bytes)
}

/// The size that follows `key` in `text`.
pub(crate) fn after(text: &str, key: &str) -> Option<Bytes> {
    size(&text[place(text, key)? + key.len()..])
}

/// The plain count that follows `key` in `text`.
pub(crate) fn count_after(text: &str, key: &str) -> Option<Bytes> {
    count(&text[place(text, key)? + key.len()..])
}

/// The size that stands right before `key` in `text`.
pub(crate) fn before(text: &str, key: &str) -> Option<Bytes> {
    let head = text[..place(text, key)?].trim_end();
    let mut words = head.rsplitn(3, [' ', ';', '(']);
    let (unit, number) = (words.next()?, words.next().unwrap_or(""));
    size(unit).or_else(|| size(&format!("{number} {unit}")))
}

/// `number` times two to the `shift`, with as many decimals as it has, in integers.
fn scaled(number: &str, shift: u32) -> Option<Bytes> {
    let number = number.replace(',', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let fraction = &fraction[..fraction.len().min(6)];
    let whole = whole.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    let part = match fraction {
        "" => 0,
        digits => {
            let scale = 10u128.pow(u32::try_from(digits.len()).ok()?);
            u64::try_from((digits.parse::<u128>().ok()? << shift) / scale).ok()?
        }
    };
    whole.checked_add(part).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_they_are_printed() {
        assert_eq!(size("20.00 MiB (GPU 0"), Some(Bytes::mib(20)));
        assert_eq!(size("1.50GiB"), Some(Bytes::mib(1536)));
        assert_eq!(size("10.76G (11551965184 bytes)").map(|b| b.0 >> 20), Some(11_018));
        assert_eq!(count("11551965184 bytes"), Some(Bytes(11_551_965_184)));
        assert_eq!(size("8,000,000,000 bytes"), Some(Bytes(8_000_000_000)));
        assert_eq!(size("61234567kB,"), Some(Bytes(61_234_567 << 10)));
        assert_eq!(size("17179869184.00 GiB"), None);
        assert_eq!(size("5 epochs"), None);
        assert_eq!(before("9.64 GiB already allocated", "already allocated"), after("x 9.64 GiB", "x"));
        assert_eq!(before("(MPS allocated: 1 GB; 15.44 MiB free;", "free"), size("15.44 MiB"));
    }
}
