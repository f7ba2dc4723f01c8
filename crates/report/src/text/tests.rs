//! Snapshots of the whole text, and that its columns re-add as printed.

use super::*;
use crate::sample;
use memfit_engine::{Fit, Verdict};

fn plain(e: &Estimate, options: &Options) -> String {
    sample::plain(&estimate(e, options))
}

#[test]
fn a_report_reads_from_the_peak_down() {
    expect_test::expect![[r#"
        small_cnn
        onnx · 76,938 parameters · 256 buffer values · 12 operators
        train · pytorch · fp32 · adam (foreach) · batch 8

        Peak   12.2 MiB allocated, in backward, at features.2
               15.1 MiB reserved by the framework's allocator
              415.1 MiB on the device, between 395.1 MiB and 455.1 MiB
                8.0 MiB saved for backward at the end of forward

        At the peak                      MiB
        activations                      8.0   65.4 %  ██████████████████████████▏
        activation gradients             2.0   16.4 %  ██████▌
        workspace                        0.9    7.8 %  ███▏
        optimizer state                  0.6    4.8 %  █▉
        parameters                       0.3    2.4 %  █
        gradients                        0.3    2.4 %  █
        inputs                           0.1    0.8 %  ▍
        transients                       0.0    0.0 %  ▏
        ────────────────────────────────────
        allocated                       12.2
        held by the allocator            2.9
        ────────────────────────────────────
        reserved                        15.1
        context and libraries          400.0
        ────────────────────────────────────
        on the device                  415.1

        Layers  sizes in MiB
        layer       operators  output       parameters  saved  at peak      %
        (inputs)               8x3x32x32             0    0.0      0.1    0.8
        features.0  Conv       8x64x32x32        1,792    2.0      4.0   32.9
        features.1  Relu       8x64x32x32            0    2.0      2.0   16.4
        features.2  Conv       8x128x32x32      73,856    4.0      6.1   49.7
        head.fc     Gemm       8x10x1x1          1,290    0.0      0.0    0.2
        ─────────────────────────────────────────────────────────────────────
        total       5 layers                    76,938    8.0     12.2  100.0

        Largest tensors alive at the peak
        tensor                     layer       what it is            MiB     %
        /features.2/Conv_output_0  features.2  activations           4.0  32.7
        /features.0/Conv_output_0  features.0  activations           2.0  16.4
        threshold_backward         features.0  activation gradients  2.0  16.4
        all others                                                   4.2  34.5

        Assumptions
        - the loss is cross-entropy over 10 classes: output `logits` has shape 8x10
    "#]]
    .assert_eq(&plain(&sample::estimate(), &Options::default()));
}

#[test]
fn a_narrow_terminal_folded_layers_and_unknown_operators() {
    let mut e = sample::estimate();
    e.unknown = vec!["com.example.Fancy".into(), "Mystery".into()];
    e.warnings = vec!["the export has no batch normalisation although 2 convolutions carry a bias as if one was folded into them".into()];
    e.peak.layer = "encoder.layer.11.attention.self.with.a.very.long.name.indeed.that.does.not.fit".into();
    let options = Options { width: 64, depth: Depth::At(1), top: 2, tensors: 2 };
    let text = plain(&e, &options);
    expect_test::expect![[r#"
        small_cnn
        onnx · 76,938 parameters · 256 buffer values · 12 operators
        train · pytorch · fp32 · adam (foreach) · batch 8

        Peak   12.2 MiB allocated, not exact, in backward,
                        at encoder.layer.11.att…indeed.that.does.not.fit
               15.1 MiB reserved by the framework's allocator
              415.1 MiB on the device, between 395.1 MiB and 455.1 MiB
                8.0 MiB saved for backward at the end of forward

        At the peak                      MiB
        activations                      8.0   65.4 %  ███████████▏
        activation gradients             2.0   16.4 %  ██▊
        workspace                        0.9    7.8 %  █▍
        optimizer state                  0.6    4.8 %  ▉
        parameters                       0.3    2.4 %  ▍
        gradients                        0.3    2.4 %  ▍
        inputs                           0.1    0.8 %  ▏
        transients                       0.0    0.0 %  ▏
        ────────────────────────────────────
        allocated                       12.2
        held by the allocator            2.9
        ────────────────────────────────────
        reserved                        15.1
        context and libraries          400.0
        ────────────────────────────────────
        on the device                  415.1

        Layers  sizes in MiB
        layer     operators    parameters  saved  at peak      %
        (inputs)                        0    0.0      0.1    0.8
        features  Conv×2 Relu      75,648    8.0     12.1   99.0
        1 other   Gemm              1,290    0.0      0.0    0.2
        ────────────────────────────────────────────────────────
        total     5 layers         76,938    8.0     12.2  100.0

        Largest tensors alive at the peak
        tensor                     layer       what it is   MiB     %
        /features.2/Conv_output_0  features.2  activations  4.0  32.7
        /features.0/Conv_output_0  features.0  activations  2.0  16.4
        all others                                          6.2  50.9

        Not exact
        operators without a rule, or whose results have no known size.
          They keep all inputs and outputs that have a size; what else
          they need is missing.
          com.example.Fancy
          Mystery

        Warnings
        - the export has no batch normalisation although 2 convolutions
          carry a bias as if one was folded into them

        Assumptions
        - the loss is cross-entropy over 10 classes: output `logits` has
          shape 8x10
    "#]]
    .assert_eq(&text);
    use unicode_width::UnicodeWidthStr;
    let too_wide: Vec<&str> = text.lines().filter(|l| l.width() > 64).collect();
    assert!(too_wide.is_empty(), "{too_wide:#?}");
}

#[test]
fn a_card_that_is_too_small_says_what_failed() {
    let mut e = sample::estimate();
    e.fit = Some(sample::fit());
    let text = plain(&e, &Options::default());
    let part: Vec<&str> =
        text.lines().skip_while(|l| !l.starts_with("Fit ")).take_while(|l| !l.is_empty()).collect();
    expect_test::expect![[r#"
        Fit   does not fit on rtx-3060: 15.0 MiB wanted, 10.0 MiB usable of 12.00 GiB
              fails in backward, at features.0: threshold_backward asked for 2.0 MiB
              3.0 MiB was free, 3.0 MiB of it in pieces of at most 1.0 MiB
    "#]]
    .assert_eq(&(part.join("\n") + "\n"));
}

#[test]
fn nothing_is_wider_than_the_narrowest_terminal() {
    use unicode_width::UnicodeWidthStr;
    let mut e = sample::estimate();
    e.fit = Some(Fit { verdict: Verdict::Fits, shortage: None, ..sample::fit() });
    let text = plain(&e, &Options { width: 60, ..Options::default() });
    let too_wide: Vec<&str> = text.lines().filter(|l| l.width() > 60).collect();
    assert!(too_wide.is_empty(), "{too_wide:#?}");
    for said in
        ["on the device,\n", "between 395.1 MiB and 455.1 MiB\n", "Fit   fits on rtx-3060:", " MiB left\n"]
    {
        assert!(text.contains(said), "no {said} in {text}");
    }
}

/// The number that stands in a column, as printed.
fn printed(line: &str, from_right: usize) -> u64 {
    let cell = line.split_whitespace().rev().nth(from_right).unwrap();
    cell.replace([',', '.'], "").parse().unwrap()
}

#[test]
fn printed_rows_re_add_to_the_printed_total() {
    for top in [1, 2, 3, 20] {
        let text = plain(&sample::estimate(), &Options { top, ..Options::default() });
        let rows: Vec<&str> = text
            .lines()
            .skip_while(|l| !l.starts_with("layer "))
            .skip(1)
            .take_while(|l| !l.is_empty())
            .filter(|l| !l.starts_with('─'))
            .collect();
        let (total, rows) = rows.split_last().unwrap();
        assert!(total.starts_with("total") && !rows.is_empty());
        for column in 0..4 {
            let sum: u64 = rows.iter().map(|l| printed(l, column)).sum();
            assert_eq!(sum, printed(total, column), "column {column} from the right, top {top}:\n{text}");
        }
    }
}
