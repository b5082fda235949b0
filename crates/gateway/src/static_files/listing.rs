//! HTML listings of folders.

use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use pronghorn_engine::Response;
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use crate::memory_limit::Reservation;
use crate::static_files::root::{Root, Wait};

/// Maximum number of names on a page.
const MAX_NAMES: usize = 10_000;
const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Overhead of a name while a page is built, in bytes.
const NAME_BYTES: u64 = 40;

/// A listing page.
pub(crate) struct Page {
    pub(crate) text: String,
    /// Whether some names are symbolic links.
    pub(crate) has_links: bool,
}

/// Builds the page of the folder at `path`, which is open as `folder`. Blocks on the disk.
/// Afterwards `reservation` is the size of the page in memory.
///
/// # Errors
///
/// If the folder cannot be read; [`Errno::AGAIN`] if the memory limit is reached.
pub(crate) fn page(
    root: &Root,
    path: &[u8],
    folder: &OwnedFd,
    shows_hidden: bool,
    reservation: &mut Reservation,
) -> Result<Page, Errno> {
    // If there are too many names, the first ones in the page's order are kept, whatever the file
    // system's order.
    let mut names: BinaryHeap<(bool, String)> = BinaryHeap::new();
    let (mut suppressed, mut has_links) = (0, false);
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        // A name that is not UTF-8 is not listed.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") || (name.starts_with('.') && !shows_hidden) {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Directory => true,
            FileType::RegularFile => false,
            // Links that lead out of the root or to hidden files, and special files, cannot be
            // served and are not listed.
            FileType::Symlink | FileType::Unknown => {
                has_links = true;
                match root.type_of(&[path, b"/", name.as_bytes()].concat(), Wait::Disk) {
                    Ok(FileType::Directory) => true,
                    Ok(FileType::RegularFile) => false,
                    _ => continue,
                }
            }
            _ => continue,
        };
        take(reservation, name.len() as u64 + NAME_BYTES)?;
        names.push((!is_folder, name.to_owned()));
        if names.len() > MAX_NAMES
            && let Some((_, last)) = names.pop()
        {
            reservation.shrink(last.len() as u64 + NAME_BYTES);
            suppressed += 1;
        }
    }
    let names = names.into_sorted_vec();
    let listed = reservation.bytes();
    let mut text = write(&names, suppressed, |bytes| take(reservation, bytes))?;
    drop(names);
    text.shrink_to_fit();
    reservation.shrink(listed);
    Ok(Page { text, has_links })
}

fn take(reservation: &mut Reservation, bytes: u64) -> Result<(), Errno> {
    if reservation.grow(bytes) { Ok(()) } else { Err(Errno::AGAIN) }
}

/// Writes the page, folders first. `suppressed` is the number of further names. `take` reserves
/// memory for each piece.
fn write(
    names: &[(bool, String)],
    suppressed: usize,
    mut take: impl FnMut(u64) -> Result<(), Errno>,
) -> Result<String, Errno> {
    let mut page = String::from(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
            content=\"width=device-width\">\n",
    );
    page.push_str("<title>Files</title>\n<ul>\n<li><a href=\"../\">../</a>\n");
    take(page.len() as u64)?;
    for (is_file, name) in names {
        let before = page.len();
        let slash = if *is_file { "" } else { "/" };
        // The leading `./` keeps a name with a colon from being parsed as a scheme.
        let _ = writeln!(
            page,
            "<li><a href=\"./{}{slash}\">{}{slash}</a>",
            utf8_percent_encode(name, &KEPT),
            escape(name)
        );
        take((page.len() - before) as u64)?;
    }
    let before = page.len();
    page.push_str("</ul>\n");
    if suppressed > 0 {
        let _ = writeln!(
            page,
            "<p>These are the first {} of {} names.",
            names.len(),
            names.len() + suppressed
        );
    }
    take((page.len() - before) as u64)?;
    Ok(page)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(crate) fn answer(page: Bytes) -> Response {
    Response::new(StatusCode::OK)
        .with_header(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))
        .with_body(page)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory_limit::SharedLimit;

    #[test]
    fn names_cannot_become_markup() {
        let page = [
            (false, "a b".to_owned()),
            (true, "<script>\"&.txt".to_owned()),
            (true, "javascript:x".to_owned()),
        ];
        let page = write(&page, 0, |_| Ok(())).expect("a page");
        assert!(page.contains("<a href=\"./a%20b/\">a b/</a>"), "{page}");
        assert!(
            page.contains("<a href=\"./%3Cscript%3E%22%26.txt\">&lt;script&gt;&quot;&amp;.txt</a>"),
            "{page}"
        );
        assert!(page.contains("<a href=\"./javascript%3Ax\">"), "{page}");
    }

    #[test]
    fn links_that_lead_out_or_to_hidden_files_and_those_are_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), "").expect("write");
        std::fs::write(folder.path().join(".hidden"), "").expect("write");
        std::os::unix::fs::symlink("file", folder.path().join("inside")).expect("a link");
        std::os::unix::fs::symlink(".hidden", folder.path().join("secret")).expect("a link");
        std::os::unix::fs::symlink(outside.path(), folder.path().join("out")).expect("a link");
        let root = Root::new(folder.path()).expect("a folder");
        let page = |hidden| {
            let root = if hidden { root.with_hidden() } else { root.clone() };
            let opened = root.open_folder(b".").expect("a folder");
            let mut reservation = Arc::new(SharedLimit::new(1 << 20)).begin();
            let page = page(&root, b".", &opened.file, hidden, &mut reservation).expect("a page");
            assert_eq!((reservation.bytes(), page.has_links), (page.text.len() as u64, true));
            page.text
        };
        assert!(
            page(false).contains(">inside<") && page(false).contains(">file<"),
            "{}",
            page(false)
        );
        assert!(
            !page(false).contains("hidden") && !page(false).contains(">out"),
            "{}",
            page(false)
        );
        assert!(!page(false).contains("secret"), "{}", page(false));
        assert!(page(true).contains(">.hidden<") && page(true).contains(">secret<"));
    }

    #[test]
    fn names_beyond_the_most_are_the_last_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..MAX_NAMES + 7 {
            std::fs::write(folder.path().join(format!("{number:05}")), "").expect("a file");
        }
        // Created last, and first on the page.
        std::fs::create_dir(folder.path().join("zz")).expect("a folder");
        let root = Root::new(folder.path()).expect("a folder");
        let opened = root.open_folder(b".").expect("a folder");
        let mut reservation = Arc::new(SharedLimit::new(1 << 24)).begin();
        let page = page(&root, b".", &opened.file, false, &mut reservation).expect("a page").text;
        assert_eq!(reservation.bytes(), page.len() as u64);
        let shown: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix("<li><a href=\"./")?.split('"').next())
            .collect();
        let files = (0..MAX_NAMES - 1).map(|number| format!("{number:05}"));
        assert!(
            shown
                .iter()
                .map(|name| (*name).to_owned())
                .eq(std::iter::once("zz/".to_owned()).chain(files))
        );
        assert!(
            page.ends_with("</ul>\n<p>These are the first 10000 of 10008 names.\n"),
            "{}",
            &page[page.len() - 100..]
        );
    }
}
