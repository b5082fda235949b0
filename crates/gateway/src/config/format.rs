//! Formatter of configuration files.

use toml_edit::{Array, DocumentMut, Item, RawString, Table, Value};

/// Formats a configuration: one space around `=` and after commas, an empty line before each table,
/// no trailing spaces. Comments, the order of keys and the notation of numbers and strings are
/// kept.
///
/// # Errors
///
/// Returns an error with its position if `text` is not valid TOML.
pub fn format(text: &str) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let mut is_first = true;
    format_table(document.as_table_mut(), true, &mut is_first);
    let trailing = comments(document.trailing().as_str().unwrap_or_default());
    document.set_trailing(trailing);
    let mut formatted = document.to_string();
    formatted.truncate(formatted.trim_end().len());
    if !formatted.is_empty() {
        formatted.push('\n');
    }
    Ok(formatted.trim_start_matches('\n').to_owned())
}

fn format_table(table: &mut Table, is_root: bool, is_first: &mut bool) {
    if !is_root && !table.is_implicit() {
        let before = table.decor().prefix().and_then(RawString::as_str).unwrap_or_default();
        let gap = if *is_first { "" } else { "\n" };
        let prefix = format!("{gap}{}", comments(before));
        let suffix = end_comment(table.decor().suffix());
        table.decor_mut().set_prefix(prefix);
        table.decor_mut().set_suffix(suffix);
        *is_first = false;
    }
    for (mut key, item) in table.iter_mut() {
        match item {
            Item::Value(value) => {
                let before =
                    key.leaf_decor().prefix().and_then(RawString::as_str).unwrap_or_default();
                // An empty line between two keys is kept, since it groups them.
                let gap = if before.starts_with('\n') && !*is_first { "\n" } else { "" };
                let prefix = format!("{gap}{}", comments(before));
                key.leaf_decor_mut().set_prefix(prefix);
                key.leaf_decor_mut().set_suffix(" ");
                key.dotted_decor_mut().clear();
                format_value(value, true);
                *is_first = false;
            }
            Item::Table(table) => format_table(table, false, is_first),
            Item::ArrayOfTables(tables) => {
                tables.iter_mut().for_each(|table| format_table(table, false, is_first));
            }
            Item::None => {}
        }
    }
}

fn format_value(value: &mut Value, is_outermost: bool) {
    let suffix = if is_outermost { end_comment(value.decor().suffix()) } else { String::new() };
    match value {
        Value::Array(array) => format_array(array),
        Value::InlineTable(table) => {
            for (mut key, inner) in table.iter_mut() {
                key.leaf_decor_mut().set_prefix(" ");
                key.leaf_decor_mut().set_suffix(" ");
                key.dotted_decor_mut().clear();
                format_value(inner, false);
            }
            let last = table.iter().count().checked_sub(1);
            if let Some((_, inner)) = last.and_then(|last| table.iter_mut().nth(last)) {
                inner.decor_mut().set_suffix(" ");
            }
        }
        _ => {}
    }
    if is_outermost || !has_comment(value.decor().prefix()) {
        value.decor_mut().set_prefix(if is_outermost { " " } else { "" });
    }
    value.decor_mut().set_suffix(suffix);
    if !is_outermost && value.decor().prefix().and_then(RawString::as_str) == Some("") {
        // In an inline table, the space after `=` belongs to the value.
        value.decor_mut().set_prefix(" ");
    }
}

fn format_array(array: &mut Array) {
    let has_lines = array.iter().any(|value| has_line(value.decor().prefix()))
        || array.trailing().as_str().is_some_and(|text| text.contains('\n'));
    let count = array.len();
    for (index, value) in array.iter_mut().enumerate() {
        let before =
            value.decor().prefix().and_then(RawString::as_str).unwrap_or_default().to_owned();
        format_value(value, false);
        let prefix = match (has_lines, index) {
            (true, _) => format!("\n{}    ", indented(&comments(&before))),
            (false, 0) => String::new(),
            (false, _) => " ".to_owned(),
        };
        value.decor_mut().set_prefix(prefix);
    }
    if has_lines {
        let trailing =
            format!("\n{}", indented(&comments(array.trailing().as_str().unwrap_or_default())));
        array.set_trailing(trailing);
        array.set_trailing_comma(count > 0);
    } else {
        array.set_trailing("");
        array.set_trailing_comma(false);
    }
}

/// Returns the comment lines of `text`.
fn comments(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect()
}

fn indented(text: &str) -> String {
    text.lines().flat_map(|line| ["    ", line, "\n"]).collect()
}

/// Returns the comment after a value on its line.
fn end_comment(suffix: Option<&RawString>) -> String {
    let text = suffix.and_then(RawString::as_str).unwrap_or_default().trim();
    if text.starts_with('#') { format!(" {text}") } else { String::new() }
}

fn has_comment(prefix: Option<&RawString>) -> bool {
    prefix.and_then(RawString::as_str).is_some_and(|text| text.contains('#'))
}

fn has_line(prefix: Option<&RawString>) -> bool {
    prefix.and_then(RawString::as_str).is_some_and(|text| text.contains('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_is_one_and_comments_stay() {
        let given = "# top\n[server]\nlisten=['[::]:443' ,\"http://[::]:80\"]   # \
            both\n\n\n\n\nworkers  =2\n[[sites]]\n  # of the shop\n  hosts = [\n\"a\", # \
            one\n \"b\"]\n  tls={cert=\"c\",key = \"k\"}\n[[sites.routes]]\nfiles=\"x\"\n\n# \
            end\n";
        let wanted = "# top\n[server]\nlisten = ['[::]:443', \"http://[::]:80\"] # \
            both\n\nworkers = 2\n\n[[sites]]\n# of the shop\nhosts = [\n    \"a\",\n    # \
            one\n    \"b\",\n]\ntls = { cert = \"c\", key = \"k\" }\n\n[[sites.routes]]\nfiles \
            = \"x\"\n# end\n";
        let formatted = format(given).expect("TOML");
        assert_eq!(formatted, wanted);
        assert_eq!(format(&formatted).expect("TOML"), formatted, "formatted text is unchanged");
    }

    #[test]
    fn list_of_tables_is_on_one_line_or_on_one_each() {
        let given = "match=[{path=\"/a\",method=\"GET\"},{path=\"/b\"}]\n[[m]]\nmatch=[\n\"/a\" \
            , \
            {path=\"/b\"}]\n";
        let wanted = "match = [{ path = \"/a\", method = \"GET\" }, { path = \"/b\" \
            }]\n\n[[m]]\nmatch = [\n    \"/a\",\n    { path = \"/b\" },\n]\n";
        assert_eq!(format(given).expect("TOML"), wanted);
        assert_eq!(format(wanted).expect("TOML"), wanted);
    }

    #[test]
    fn formatting_changes_no_value() {
        for text in [
            "a = 1_000\nb.c = \"x\"\n",
            "[a.b]\nc = [[1,2],[3]]\n[a.d]\n",
            "x = { y = { z = [ ] } }\n",
        ] {
            let before: toml::Table = text.parse().expect("TOML");
            let after: toml::Table = format(text).expect("TOML").parse().expect("TOML");
            assert_eq!(before, after, "{text}");
        }
    }

    #[test]
    fn broken_text_is_refused() {
        assert!(format("a = \n").is_err());
    }
}
