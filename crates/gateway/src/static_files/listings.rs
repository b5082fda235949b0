//! A cache of listing pages, shared by all requests.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::io::Errno;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::memory_limit::{Reservation, SharedLimit};
use crate::static_files::listing::{self, Page};
use crate::static_files::root::{FileIdentity, Folder, Root};

/// Maximum bytes of all pages over all workers: cached pages, pages that clients have not read yet,
/// and pages that are being built.
const MOST_BYTES: u64 = 64 << 20;
/// Maximum bytes of cached pages. The latest page is cached whatever its size.
const KEPT_BYTES: usize = 8 << 20;
/// Maximum number of cached pages.
const KEPT_PAGES: usize = 64;
/// Maximum number of pages built at once. Further requests wait.
const MADE_AT_ONCE: usize = 4;
/// How long a page with links is valid: changes to the targets of links do not change the folder.
const LINKS_HOLD: Duration = Duration::from_secs(1);

static HELD: LazyLock<Arc<SharedLimit>> = LazyLock::new(|| Arc::new(SharedLimit::new(MOST_BYTES)));

/// The pages of a folder and its subfolders.
pub(crate) struct Listings {
    bound: Arc<SharedLimit>,
    making: Semaphore,
    /// Cached pages, the latest last.
    kept: Mutex<Vec<Kept>>,
}

struct Kept {
    folder: FileIdentity,
    made: Instant,
    has_links: bool,
    page: Bytes,
}

/// A page in memory with its reservation.
struct PageText {
    text: String,
    _room: Reservation,
}

impl AsRef<[u8]> for PageText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Listings {
    pub(crate) fn new() -> Self {
        Self::within(HELD.clone())
    }

    fn within(bound: Arc<SharedLimit>) -> Self {
        Self { bound, making: Semaphore::new(MADE_AT_ONCE), kept: Mutex::default() }
    }

    /// Waits until another page may be built.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.making.acquire().await.ok()
    }

    /// Returns the page of a folder. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// If the path is not a readable folder; [`Errno::AGAIN`] if the memory limit is reached.
    pub(crate) fn page(
        &self,
        root: &Root,
        path: &[u8],
        shows_hidden: bool,
    ) -> Result<Bytes, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let Folder { file, identity, is_settled } = root.open_folder(path)?;
        let made = Instant::now();
        if let Some(page) = self.find(&identity, made) {
            return Ok(page);
        }
        let mut reservation = self.bound.begin();
        let Page { text, has_links } =
            listing::page(root, path, &file, shows_hidden, &mut reservation)?;
        let page = Bytes::from_owner(PageText { text, _room: reservation });
        Ok(if is_settled {
            self.keep(Kept { folder: identity, made, has_links, page })
        } else {
            page
        })
    }

    fn find(&self, folder: &FileIdentity, now: Instant) -> Option<Bytes> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.iter().find(|kept| kept.folder == *folder)?;
        let holds = !kept.has_links || now.saturating_duration_since(kept.made) < LINKS_HOLD;
        holds.then(|| kept.page.clone())
    }

    /// Caches a page, evicting older ones, and returns it, or an equal page that another request
    /// has built meanwhile.
    fn keep(&self, new: Kept) -> Bytes {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) =
            kept.iter().find(|kept| kept.folder == new.folder && kept.page == new.page)
        {
            let page = same.page.clone();
            kept.iter_mut()
                .filter(|kept| kept.folder == new.folder)
                .for_each(|kept| kept.made = new.made);
            return page;
        }
        // Older pages of a changed folder are obsolete.
        kept.retain(|kept| !kept.folder.is_of_same_file(&new.folder));
        let mut bytes = new.page.len();
        let fits = |kept: &&Kept| {
            bytes += kept.page.len();
            bytes <= KEPT_BYTES
        };
        let pinned = kept.iter().rev().take(KEPT_PAGES - 1).take_while(fits).count();
        let leaving = kept.len() - pinned;
        kept.drain(..leaving);
        let page = new.page.clone();
        kept.push(new);
        page
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder whose last change looks old.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for name in names {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        std::thread::sleep(Duration::from_millis(40));
        folder
    }

    #[test]
    fn page_is_made_once_for_all_who_ask_until_the_folder_changes() {
        let folder = folder(&["a", "b"]);
        let (root, listings) = (
            Root::new(folder.path()).expect("a folder"),
            Listings::within(Arc::new(SharedLimit::new(1 << 20))),
        );
        let page = || listings.page(&root, b"", false).expect("a page");
        let first = page();
        if listings.kept.lock().expect("a lock").is_empty() {
            return eprintln!("skipped: this file system keeps whole seconds");
        }
        let held = listings.bound.held();
        assert_eq!(held, first.len() as u64);
        assert!(
            (0..1_000).all(|_| page().as_ptr() == first.as_ptr()),
            "all requests share one page"
        );
        assert_eq!(listings.bound.held(), held);
        fs::write(folder.path().join("c"), "").expect("a file");
        let changed = page();
        assert!(changed.ends_with(b">c</a>\n</ul>\n"), "{changed:?}");
    }

    #[test]
    fn pages_that_are_not_taken_have_a_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..200 {
            fs::write(folder.path().join(format!("{number:0200}")), "").expect("a file");
        }
        let root = Root::new(folder.path()).expect("a folder");
        let listings = Listings::within(Arc::new(SharedLimit::new(1 << 20)));
        let make = |number: usize| {
            fs::write(folder.path().join(format!("new {number}")), "").expect("a file");
            listings.page(&root, b"", false)
        };
        let pages: Vec<_> = (0..50).map(make).take_while(Result::is_ok).collect();
        assert!((2..20).contains(&pages.len()), "{}", pages.len());
        assert_eq!(make(50).err(), Some(Errno::AGAIN));
        drop(pages);
        assert!(make(51).is_ok());
    }

    #[test]
    fn few_pages_are_kept() {
        let listings = Listings::within(Arc::new(SharedLimit::new(1 << 30)));
        for number in 0..2 * KEPT_PAGES as u64 {
            let folder = FileIdentity::of_inode(number);
            listings.keep(Kept {
                folder,
                made: Instant::now(),
                has_links: false,
                page: Bytes::from(vec![0; 1 << 10]),
            });
        }
        assert_eq!(listings.kept.lock().expect("a lock").len(), KEPT_PAGES);
        for number in 0..20 {
            let folder = FileIdentity::of_inode(number);
            listings.keep(Kept {
                folder,
                made: Instant::now(),
                has_links: false,
                page: Bytes::from(vec![0; 1 << 20]),
            });
        }
        assert_eq!(listings.kept.lock().expect("a lock").len(), KEPT_BYTES >> 20);
    }

    #[test]
    fn page_with_links_holds_for_a_moment() {
        let listings = Listings::within(Arc::new(SharedLimit::new(1 << 20)));
        let (folder, made) = (FileIdentity::of_inode(1), Instant::now());
        listings.keep(Kept {
            folder: folder.clone(),
            made,
            has_links: true,
            page: Bytes::from_static(b"x"),
        });
        assert!(listings.find(&folder, made + LINKS_HOLD / 2).is_some());
        assert!(listings.find(&folder, made + LINKS_HOLD).is_none());
    }
}
