//! Mapping of paths to scripts and files of a PHP application.

use std::ops::ControlFlow;
use std::sync::Arc;

use http::Uri;
use pronghorn_engine::Response;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::fastcgi::Script;
use crate::static_files::StaticFiles;
use crate::static_files::requested_file::RequestedFile;
use crate::static_files::root::Wait;

/// Suffix of the names of scripts.
const SCRIPT: &[u8] = b".php";

/// A folder with scripts among other files.
pub(crate) struct Scripts {
    files: StaticFiles,
    /// Names of index files, scripts and others.
    index: Arc<[String]>,
    /// The script for paths without a file.
    fallback: Option<String>,
    /// The folder as seen by the application.
    folder: Arc<[u8]>,
}

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Script(Script),
    /// A static file.
    File,
    /// A folder whose path lacks the trailing slash.
    Folder,
    Nothing,
}

impl Scripts {
    /// Uses the folder that is open now, even if links in its path change later: the application
    /// resolves script paths as they were configured.
    pub(crate) fn new(
        files: StaticFiles,
        index: &[String],
        fallback: Option<String>,
        folder: &[u8],
    ) -> Self {
        let served: Vec<_> =
            index.iter().filter(|name| !is_code(name.as_bytes())).cloned().collect();
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        Self {
            files: files.with_index(&served).pinned(),
            index: index.into(),
            fallback,
            folder: folder.into(),
        }
    }

    /// Returns the static files.
    pub(crate) fn files(&self) -> &StaticFiles {
        &self.files
    }

    /// Returns the requested path, or a response if it is invalid.
    pub(crate) fn requested<'a>(&self, uri: &'a Uri) -> ControlFlow<Response, RequestedFile<'a>> {
        self.files.named(uri)
    }

    /// Looks up a path. An error of [`Wait::CachedOnly`] means that the disk is needed.
    pub(crate) fn find(&self, requested: &RequestedFile<'_>, wait: Wait) -> Result<Found, Errno> {
        let path = &*requested.path;
        if let Some(script) = self.script_on_the_way(requested, wait)? {
            return Ok(Found::Script(script));
        }
        let kind = match path {
            // Only the application can interpret a path with an encoded slash.
            _ if !requested.can_be_named() => None,
            b"" => Some(FileType::Directory),
            path => self.type_of(path, wait)?,
        };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match kind {
            Some(FileType::RegularFile) if !requested.is_folder && !is_code(name) => {
                return Ok(Found::File);
            }
            Some(FileType::Directory) => {
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                for name in &*self.index {
                    let candidate = [path, slash, name.as_bytes()].concat();
                    if self.type_of(&candidate, wait)? == Some(FileType::RegularFile) {
                        return Ok(match name.as_bytes() {
                            _ if !requested.is_folder => Found::Folder,
                            name if is_script(name) => {
                                Found::Script(self.script(&candidate, Vec::new()))
                            }
                            _ => Found::File,
                        });
                    }
                }
            }
            _ => {}
        }
        if let Some(fallback) = &self.fallback
            && self.type_of(fallback.as_bytes(), wait)? == Some(FileType::RegularFile)
        {
            return Ok(Found::Script(self.script(fallback.as_bytes(), Vec::new())));
        }
        Ok(Found::Nothing)
    }

    /// Returns the first script in the path. A suffix `.php` alone is not enough: it may follow the
    /// name of an uploaded picture.
    fn script_on_the_way(
        &self,
        requested: &RequestedFile<'_>,
        wait: Wait,
    ) -> Result<Option<Script>, Errno> {
        let path = &*requested.path;
        let Some(end) = end_of_script(&path[..requested.names], |name| self.type_of(name, wait))?
        else {
            return Ok(None);
        };
        let mut path_info = path[end..].to_vec();
        if requested.is_folder {
            path_info.push(b'/');
        }
        Ok(Some(self.script(&path[..end], path_info)))
    }

    fn script(&self, below: &[u8], path_info: Vec<u8>) -> Script {
        let name = [b"/", below].concat();
        let file = [&*self.folder, &name].concat();
        let root = if self.folder.is_empty() { b"/".to_vec() } else { self.folder.to_vec() };
        Script { file: Some(file), root: Some(root), name, path_info }
    }

    /// Returns the type of a file, or `None` if it is missing or unreachable.
    fn type_of(&self, path: &[u8], wait: Wait) -> Result<Option<FileType>, Errno> {
        match self.files.root.type_of(path, wait) {
            Ok(kind) => Ok(Some(kind)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::INVAL) => {
                Ok(None)
            }
            // With [`Wait::CachedOnly`] the cause may be a mounted file system.
            Err(Errno::XDEV) if wait == Wait::Disk => Ok(None),
            Err(error) => {
                if wait == Wait::Disk {
                    self.files.tell(path, error);
                }
                Err(error)
            }
        }
    }
}

/// Returns the end of the first script's name in a path.
fn end_of_script(
    path: &[u8],
    mut type_of: impl FnMut(&[u8]) -> Result<Option<FileType>, Errno>,
) -> Result<Option<usize>, Errno> {
    let ends = path
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| at)
        .chain([path.len()]);
    for end in ends.filter(|end| is_script(&path[..*end])) {
        match type_of(&path[..end])? {
            Some(FileType::RegularFile) => return Ok(Some(end)),
            Some(FileType::Directory) => {}
            // A missing name has nothing below it, so a path of many such names needs one lookup.
            _ => break,
        }
    }
    Ok(None)
}

/// Returns whether a path is that of a script.
pub(crate) fn is_script(path: &[u8]) -> bool {
    path.strip_suffix(SCRIPT).is_some_and(|stem| !stem.is_empty() && !stem.ends_with(b"/"))
}

/// Returns whether a file of this name contains code, which must not be served. This includes the
/// names that editors, tools and people give to copies (`config.php~`, `config.php.bak`,
/// `config.php_old`, `config.phpbak`, `#config.php#`).
fn is_code(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'.').skip(1).any(|part| {
        let end = part.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(part.len());
        let word = &part[..end];
        let is_php = word.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"php"));
        is_php
            || [&b"phtml"[..], b"phar", b"pht", b"inc"]
                .iter()
                .any(|code| word.eq_ignore_ascii_case(code))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Application {
        _folder: tempfile::TempDir,
        scripts: Scripts,
    }

    /// Creates an application with these files; a name that ends with a slash is a folder.
    fn application(names: &[&str], fallback: Option<&str>) -> Application {
        let folder = tempfile::tempdir().expect("a folder");
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(if name.ends_with('/') {
                &path
            } else {
                path.parent().expect("one")
            })
            .expect("a folder");
            if !name.ends_with('/') {
                fs::write(path, "<?php").expect("a file");
            }
        }
        symlink("/etc/passwd", folder.path().join("out.php")).expect("a link");
        let files = StaticFiles::new(folder.path()).expect("a folder");
        let index = ["index.php".to_owned(), "index.html".to_owned()];
        let scripts = Scripts::new(files, &index, fallback.map(str::to_owned), b"/srv/www/");
        Application { _folder: folder, scripts }
    }

    impl Application {
        /// Returns `NAME + PATH_INFO` of a script, or the kind of the target.
        fn find(&self, target: &str) -> String {
            let uri: Uri = target.parse().expect("a target");
            let requested = match self.scripts.requested(&uri) {
                ControlFlow::Continue(requested) => requested,
                ControlFlow::Break(answer) => return answer.status.as_u16().to_string(),
            };
            let found = self.scripts.find(&requested, Wait::Disk).expect("it can be looked up");
            if let Ok(from_memory) = self.scripts.find(&requested, Wait::CachedOnly) {
                assert_eq!(from_memory, found, "{target}");
            }
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match found {
                Found::Script(script) => {
                    assert_eq!(script.file, Some([b"/srv/www", &*script.name].concat()));
                    assert_eq!(script.root.as_deref(), Some(&b"/srv/www"[..]));
                    format!("{}+{}", text(&script.name), text(&script.path_info))
                }
                other => format!("{other:?}"),
            }
        }
    }

    #[test]
    fn path_goes_to_the_first_script_on_its_way() {
        let application = application(&["index.php", "a/b.php", "x.php/y.php", "logo.png"], None);
        for (target, requested) in [
            ("/", "/index.php+"),
            ("/index.php", "/index.php+"),
            ("/index.php/", "/index.php+/"),
            ("/index.php/a/b.php/c", "/index.php+/a/b.php/c"),
            ("/a/b.php/%41%20b/?q", "/a/b.php+/A b/"),
            ("/x.php/y.php/z", "/x.php/y.php+/z"),
            ("/logo.png", "File"),
            // A common vulnerability: an uploaded picture is executed.
            ("/logo.png/x.php", "Nothing"),
            ("/missing.php", "Nothing"),
            ("/out.php", "Nothing"),
            ("/.php", "404"),
            ("/a/.php", "404"),
        ] {
            assert_eq!(application.find(target), requested, "{target}");
        }
    }

    #[test]
    fn what_is_not_there_is_for_the_application() {
        let application = application(
            &["index.php", "style.css", "empty/", "admin/index.php", "docs/index.html"],
            Some("index.php"),
        );
        for (target, requested) in [
            ("/users/5", "/index.php+"),
            ("/missing.php", "/index.php+"),
            ("/style.css", "File"),
            ("/style.css/", "/index.php+"),
            ("/empty/", "/index.php+"),
            ("/empty", "/index.php+"),
            ("/admin", "Folder"),
            ("/admin/", "/admin/index.php+"),
            ("/docs/", "File"),
            ("/.well-known/x", "/index.php+"),
            ("/.git/config", "404"),
            ("/%2e%2e/x", "400"),
            ("/wiki/AC%2FDC", "/index.php+"),
            ("/style.css%2F", "/index.php+"),
            ("/admin%2Findex.php", "/index.php+"),
            ("/index.php%2Fa", "/index.php+"),
            ("/admin/index.php/AC%2FDC/x%2F/", "/admin/index.php+/AC/DC/x//"),
            ("/.git%2Fconfig", "404"),
            ("/a%2F.git", "404"),
        ] {
            assert_eq!(application.find(target), requested, "{target}");
        }
    }

    #[test]
    fn path_of_many_names_takes_one_look() {
        let path = b"a.php/".repeat(1000);
        let mut looks = 0;
        let found = end_of_script(&path, |_| {
            looks += 1;
            Ok(None)
        });
        assert_eq!((found, looks), (Ok(None), 1));
    }

    #[test]
    fn code_is_never_served_as_a_file() {
        let names = [
            "a.PHP",
            "a.phtml",
            "a.php~",
            "a.php.bak",
            "a.php.gz",
            "a.inc",
            "a.phar",
            "a.php7",
            "a.phps",
            "a.php.",
        ];
        let copies = [
            "a.php_bak",
            "a.php-old",
            "a.phpbak",
            "a.PHP_",
            "#a.php#",
            "a.php (1)",
            "a.php,v",
            "a.inc_",
            "a.phtml-1",
            "a.b.php=",
        ];
        let others = ["a.html~", "php", "php.txt", "a.increment.js", "a.ph"];
        let application = application(&[&names[..], &copies, &others].concat(), None);
        let find = |name: &str| {
            application.find(&format!("/{}", name.replace('#', "%23").replace(' ', "%20")))
        };
        for name in names.iter().chain(&copies) {
            assert_eq!(find(name), "Nothing", "{name}");
        }
        for name in others {
            assert_eq!(find(name), "File", "{name}");
        }
    }

    #[test]
    fn fallback_that_is_gone_is_nothing() {
        assert_eq!(application(&[], Some("index.php")).find("/x"), "Nothing");
        assert_eq!(application(&["a/b"], None).find("/a%2Fb"), "Nothing");
    }
}
