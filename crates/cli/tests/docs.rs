//! `docs/cli.md` holds the help texts as the program prints them.

use std::path::Path;
use std::process::{Command, Stdio};

/// Set to write the texts into the document instead of comparing them.
const UPDATE: &str = "UPDATE_DOCS";

#[test]
fn help_texts_in_the_documentation_are_those_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let updated = with_help_texts(&document);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, updated).unwrap();
    } else {
        assert_eq!(
            document, updated,
            "run the test with {UPDATE}=1 to bring docs/cli.md up to date"
        );
    }
}

#[cfg(test)]
fn with_help_texts(document: &str) -> String {
    let mut updated = String::new();
    let mut rest = document;
    while let Some((before, after)) = rest.split_once("<!-- help:") {
        let (command, after) = after.split_once("-->").expect("the marker is closed");
        let (_, after) = after.split_once("<!-- end -->").expect("the block is closed");
        let help = help(command.trim());
        updated.extend([
            before,
            "<!-- help:",
            command,
            "-->\n\n```text\n",
            &help,
            "```\n\n<!-- end -->",
        ]);
        rest = after;
    }
    updated.push_str(rest);
    updated
}

#[cfg(test)]
fn help(command: &str) -> String {
    // Without a terminal, whose width would decide where lines are broken.
    let mut program = Command::new(env!("CARGO_BIN_EXE_pronghorn"));
    let output = program
        .args(command.split_whitespace())
        .arg("--help")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command} --help failed");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}
