//! Completion scripts.

use crate::memfit;

#[test]
fn every_shell_gets_a_script_that_knows_the_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = memfit(&["completions", shell]);
        assert_eq!((run.code, &*run.err), (0, ""), "{shell}");
        assert!(run.out.contains("--optimizer") || run.out.contains("-l optimizer"), "{shell}: {}", run.out);
        let values = ["bash", "zsh", "fish"].contains(&shell);
        assert_eq!(run.out.contains("adamw"), values, "{shell}: {}", run.out);
    }
    assert_eq!(memfit(&["completions", "dos"]).code, 2);
}
