//! Which script or file of a PHP application a path is for.

use std::ops::ControlFlow;
use std::sync::Arc;

use http::Uri;
use pronghorn_engine::Response;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::fastcgi::Script;
use crate::root::Effort;
use crate::static_files::StaticFiles;
use crate::wanted::Wanted;

/// How the names of scripts that are run end.
const SCRIPT: &[u8] = b".php";

/// A folder with scripts among other files.
pub(crate) struct Scripts {
    files: StaticFiles,
    /// Names that are looked for in a folder, scripts and others.
    index: Arc<[String]>,
    /// The script that is run where there is nothing of the name.
    fallback: Option<String>,
    /// The folder as the application sees it.
    folder: Arc<[u8]>,
}

/// What a path is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Script(Script),
    /// A file that is served as it is.
    File,
    /// A folder without the slash at its end.
    Folder,
    Nothing,
}

impl Scripts {
    /// The folder is the one that is open, whatever becomes of links on the way to it: scripts run where their path led then.
    pub(crate) fn new(files: StaticFiles, index: &[String], fallback: Option<String>, folder: &[u8]) -> Self {
        let served: Vec<_> = index.iter().filter(|name| !is_code(name.as_bytes())).cloned().collect();
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        Self { files: files.with_index(&served).staying(), index: index.into(), fallback, folder: folder.into() }
    }

    /// What is served as it is.
    pub(crate) fn files(&self) -> &StaticFiles {
        &self.files
    }

    /// What is asked for, or the answer when there can be nothing of that name.
    pub(crate) fn wanted<'a>(&self, uri: &'a Uri) -> ControlFlow<Response, Wanted<'a>> {
        self.files.named(uri)
    }

    /// Looks it up. An error of [`Effort::Memory`] means that the disk has to be waited for.
    pub(crate) fn find(&self, wanted: &Wanted<'_>, effort: Effort) -> Result<Found, Errno> {
        let path = &*wanted.path;
        if let Some(script) = self.script_on_the_way(wanted, effort)? {
            return Ok(Found::Script(script));
        }
        let kind = match path {
            // Of an address with an encoded slash the application alone can say what it means.
            _ if !wanted.can_be_named() => None,
            b"" => Some(FileType::Directory),
            path => self.type_of(path, effort)?,
        };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match kind {
            Some(FileType::RegularFile) if !wanted.is_folder && !is_code(name) => return Ok(Found::File),
            Some(FileType::Directory) => {
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                for name in &*self.index {
                    let candidate = [path, slash, name.as_bytes()].concat();
                    if self.type_of(&candidate, effort)? == Some(FileType::RegularFile) {
                        return Ok(match name.as_bytes() {
                            _ if !wanted.is_folder => Found::Folder,
                            name if is_script(name) => Found::Script(self.script(&candidate, Vec::new())),
                            _ => Found::File,
                        });
                    }
                }
            }
            _ => {}
        }
        if let Some(fallback) = &self.fallback
            && self.type_of(fallback.as_bytes(), effort)? == Some(FileType::RegularFile)
        {
            return Ok(Found::Script(self.script(fallback.as_bytes(), Vec::new())));
        }
        Ok(Found::Nothing)
    }

    /// The first script that the path goes through. What merely ends in `.php` is none: it may be a name below a picture that somebody sent.
    fn script_on_the_way(&self, wanted: &Wanted<'_>, effort: Effort) -> Result<Option<Script>, Errno> {
        let path = &*wanted.path;
        let Some(end) = end_of_script(&path[..wanted.names], |name| self.type_of(name, effort))? else { return Ok(None) };
        let mut path_info = path[end..].to_vec();
        if wanted.is_folder {
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

    /// `None` where there is nothing that can be reached.
    fn type_of(&self, path: &[u8], effort: Effort) -> Result<Option<FileType>, Errno> {
        match self.files.root.type_of(path, effort) {
            Ok(kind) => Ok(Some(kind)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::INVAL) => Ok(None),
            // From memory that may be another file system that is mounted there.
            Err(Errno::XDEV) if effort == Effort::Disk => Ok(None),
            Err(error) => {
                if effort == Effort::Disk {
                    self.files.tell(path, error);
                }
                Err(error)
            }
        }
    }
}

/// Where the name of the first script ends that a path goes through.
fn end_of_script(path: &[u8], mut type_of: impl FnMut(&[u8]) -> Result<Option<FileType>, Errno>) -> Result<Option<usize>, Errno> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).chain([path.len()]);
    for end in ends.filter(|end| is_script(&path[..*end])) {
        match type_of(&path[..end])? {
            Some(FileType::RegularFile) => return Ok(Some(end)),
            Some(FileType::Directory) => {}
            // Below it there is nothing either: a path of many such names takes one look.
            _ => break,
        }
    }
    Ok(None)
}

/// Whether a path is one of a script that is run.
pub(crate) fn is_script(path: &[u8]) -> bool {
    path.strip_suffix(SCRIPT).is_some_and(|stem| !stem.is_empty() && !stem.ends_with(b"/"))
}

/// Whether a file of this name has code in it, which nobody is to read: also under the names that editors, tools and people give to copies
/// (`config.php~`, `config.php.bak`, `config.php_old`, `config.phpbak`, `#config.php#`).
fn is_code(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'.').skip(1).any(|part| {
        let end = part.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(part.len());
        let word = &part[..end];
        let is_php = word.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"php"));
        is_php || [&b"phtml"[..], b"phar", b"pht", b"inc"].iter().any(|code| word.eq_ignore_ascii_case(code))
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

    /// With these files; a name that ends in a slash is a folder.
    fn application(names: &[&str], fallback: Option<&str>) -> Application {
        let folder = tempfile::tempdir().expect("a folder");
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(if name.ends_with('/') { &path } else { path.parent().expect("one") }).expect("a folder");
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
        /// `NAME + PATH_INFO` of a script, or what else there is.
        fn find(&self, target: &str) -> String {
            let uri: Uri = target.parse().expect("a target");
            let wanted = match self.scripts.wanted(&uri) {
                ControlFlow::Continue(wanted) => wanted,
                ControlFlow::Break(answer) => return answer.status.as_u16().to_string(),
            };
            let found = self.scripts.find(&wanted, Effort::Disk).expect("it can be looked up");
            if let Ok(from_memory) = self.scripts.find(&wanted, Effort::Memory) {
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
        for (target, wanted) in [
            ("/", "/index.php+"),
            ("/index.php", "/index.php+"),
            ("/index.php/", "/index.php+/"),
            ("/index.php/a/b.php/c", "/index.php+/a/b.php/c"),
            ("/a/b.php/%41%20b/?q", "/a/b.php+/A b/"),
            ("/x.php/y.php/z", "/x.php/y.php+/z"),
            ("/logo.png", "File"),
            // The hole of many configurations: a picture that would be run.
            ("/logo.png/x.php", "Nothing"),
            ("/missing.php", "Nothing"),
            ("/out.php", "Nothing"),
            ("/.php", "404"),
            ("/a/.php", "404"),
        ] {
            assert_eq!(application.find(target), wanted, "{target}");
        }
    }

    #[test]
    fn what_is_not_there_is_for_the_application() {
        let application = application(&["index.php", "style.css", "empty/", "admin/index.php", "docs/index.html"], Some("index.php"));
        for (target, wanted) in [
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
            assert_eq!(application.find(target), wanted, "{target}");
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
        let names = ["a.PHP", "a.phtml", "a.php~", "a.php.bak", "a.php.gz", "a.inc", "a.phar", "a.php7", "a.phps", "a.php."];
        let copies = ["a.php_bak", "a.php-old", "a.phpbak", "a.PHP_", "#a.php#", "a.php (1)", "a.php,v", "a.inc_", "a.phtml-1", "a.b.php="];
        let others = ["a.html~", "php", "php.txt", "a.increment.js", "a.ph"];
        let application = application(&[&names[..], &copies, &others].concat(), None);
        let find = |name: &str| application.find(&format!("/{}", name.replace('#', "%23").replace(' ', "%20")));
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
