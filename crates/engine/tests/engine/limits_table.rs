//! Checks that `docs/limits.md` contains the engine's table of limits.

use std::path::Path;

use pronghorn_engine::Limits;

/// If set, the test writes the table into the document instead of comparing it.
const UPDATE: &str = "UPDATE_DOCS";

#[test]
fn table_in_the_documentation_is_that_of_the_engine() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/limits.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, rest) =
        document.split_once("<!-- limits -->").expect("the document marks the table's place");
    let (_, after) = rest.split_once("<!-- end -->").expect("the document marks the table's end");
    let updated = [before, "<!-- limits -->\n\n", &table(), "\n<!-- end -->", after].concat();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, updated).unwrap();
    } else {
        assert!(
            document == updated,
            "run the test with {UPDATE}=1 to bring docs/limits.md up to date"
        );
    }
}

fn table() -> String {
    let defaults = Limits::default();
    let rows = Limits::table().iter().map(|limit| {
        let write = |value| limit.unit.write(value);
        let memory = match limit.worst_case_bytes(&defaults) {
            0 => "—".to_owned(),
            bytes => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        };
        format!(
            "| `{}` | {} | {} | {} … {} | {} | {} | `{}` | {} |\n",
            limit.name,
            limit.what,
            write(limit.default),
            write(limit.min),
            write(limit.max),
            limit.scope,
            memory,
            limit.counter,
            limit.acts
        )
    });
    let head = "| name | what it bounds | default | range | for each | memory | counter | when \
        it \
        is reached |\n|---|---|---|---|---|---|---|---|\n";
    std::iter::once(head.to_owned()).chain(rows).collect()
}
