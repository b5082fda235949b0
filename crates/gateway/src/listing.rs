//! What is in a folder, as a page.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use pronghorn_engine::Response;
use rustix::fs::{Dir, FileType, OFlags};
use rustix::io::Errno;

use crate::root::{Effort, Root};

/// Names that a page has at most.
const MAX_NAMES: usize = 10_000;
const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The page of a folder. Takes as long as the disk does.
///
/// # Errors
///
/// When it is no folder, or may not be read.
pub(crate) fn page(root: &Root, folder: &[u8], shows_hidden: bool) -> Result<Bytes, Errno> {
    let folder = if folder.is_empty() { b"." } else { folder };
    let opened = root.open(folder, OFlags::RDONLY | OFlags::DIRECTORY, Effort::Disk)?;
    let mut names: Vec<(bool, String)> = Vec::new();
    let mut is_cut = false;
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        // A name that is no text has no address that could be written down.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") || (name.starts_with('.') && !shows_hidden) {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Directory => true,
            FileType::RegularFile => false,
            // What leads out of the root, or is neither, cannot be had and is not there.
            FileType::Symlink | FileType::Unknown => match root.type_of(&[folder, b"/", name.as_bytes()].concat(), Effort::Disk) {
                Ok(FileType::Directory) => true,
                Ok(FileType::RegularFile) => false,
                _ => continue,
            },
            _ => continue,
        };
        if names.len() == MAX_NAMES {
            is_cut = true;
            break;
        }
        names.push((!is_folder, name.to_owned()));
    }
    names.sort();
    Ok(write(&names, is_cut).into())
}

/// Folders come first.
fn write(names: &[(bool, String)], is_cut: bool) -> String {
    let mut page = String::from("<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n");
    page.push_str("<title>Files</title>\n<ul>\n<li><a href=\"../\">../</a>\n");
    for (is_file, name) in names {
        let slash = if *is_file { "" } else { "/" };
        // With a dot before it, a name with a colon is no scheme.
        let _ = writeln!(page, "<li><a href=\"./{}{slash}\">{}{slash}</a>", utf8_percent_encode(name, &KEPT), escape(name));
    }
    page.push_str("</ul>\n");
    if is_cut {
        let _ = writeln!(page, "<p>There are more than {MAX_NAMES}.");
    }
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(crate) fn answer(page: Bytes) -> Response {
    Response::new(StatusCode::OK).with_header(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")).with_body(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        let page = write(&[(false, "a b".to_owned()), (true, "<script>\"&.txt".to_owned()), (true, "javascript:x".to_owned())], false);
        assert!(page.contains("<a href=\"./a%20b/\">a b/</a>"), "{page}");
        assert!(page.contains("<a href=\"./%3Cscript%3E%22%26.txt\">&lt;script&gt;&quot;&amp;.txt</a>"), "{page}");
        assert!(page.contains("<a href=\"./javascript%3Ax\">"), "{page}");
    }

    #[test]
    fn links_that_lead_out_and_hidden_files_are_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), "").expect("write");
        std::fs::write(folder.path().join(".hidden"), "").expect("write");
        std::os::unix::fs::symlink("file", folder.path().join("inside")).expect("a link");
        std::os::unix::fs::symlink(outside.path(), folder.path().join("out")).expect("a link");
        let root = Root::new(folder.path()).expect("a folder");
        let page = |hidden| String::from_utf8(page(&root, b"", hidden).expect("a page").to_vec()).expect("text");
        assert!(page(false).contains(">inside<") && page(false).contains(">file<"), "{}", page(false));
        assert!(!page(false).contains("hidden") && !page(false).contains(">out"), "{}", page(false));
        assert!(page(true).contains(">.hidden<"));
    }
}
