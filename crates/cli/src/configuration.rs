//! `pronghorn check`, `fmt` and `schema`: configuration files, without serving them.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pronghorn_gateway::Gateway;
use pronghorn_gateway::config::{self, Config, Fault, Problem};
use pronghorn_gateway::layers::Registry;

use crate::failure::{Failure, Kind};
use crate::plural::counted;
use crate::serving;

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// Configuration file
    #[arg(default_value = "pronghorn.toml")]
    file: PathBuf,
}

#[derive(Args)]
pub(crate) struct FmtArgs {
    /// Configuration files, changed in place; - for standard input to standard output
    #[arg(default_value = "pronghorn.toml")]
    files: Vec<PathBuf>,

    /// Change nothing; list the files that are not formatted, and exit with 65 if there are any
    #[arg(long)]
    check: bool,
}

/// Loads a configuration, and prints its warnings.
pub(crate) fn load(file: &Path) -> Result<Config, Failure> {
    let config = Config::load(file).map_err(|problems| failure(file, &problems))?;
    for warning in &config.warnings {
        eprint_line!("warning: {warning}");
    }
    Ok(config)
}

/// Creates the gateway of a configuration, and warns about certificates that clients will reject.
/// `https_port`: the port of the TLS listener.
pub(crate) fn open(
    file: &Path,
    config: &Config,
    layers: &Registry,
    https_port: Option<u16>,
) -> Result<Gateway, Failure> {
    let gateway = make(config, layers, https_port).map_err(|problems| failure(file, &problems))?;
    for warning in gateway.warnings() {
        eprint_line!("warning: {warning}");
    }
    Ok(gateway)
}

fn make(
    config: &Config,
    layers: &Registry,
    https_port: Option<u16>,
) -> Result<Gateway, Vec<Problem>> {
    let development = || {
        serving::development_certificate().unwrap_or_else(|| {
            Err(pronghorn_gateway::CertificateError::Generation(
                "no home folder to store it in; set HOME".to_owned(),
            ))
        })
    };
    Gateway::new(config, layers, https_port, development)
}

/// Maximum number of problems shown for one configuration.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// Returns a line for each problem shown, and one with the number of those not shown.
pub(crate) fn lines(problems: &[Problem]) -> impl Iterator<Item = String> {
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.iter().take(MAX_PROBLEMS).map(Problem::to_string).chain(more_problems(more))
}

/// Returns the line for problems that are not shown.
pub(crate) fn more_problems(count: usize) -> Option<String> {
    (count > 0).then(|| {
        format!("{} more {} not shown", count, if count == 1 { "error is" } else { "errors are" })
    })
}

/// Prints the problems, and returns a failure with their number.
pub(crate) fn failure(file: &Path, problems: &[Problem]) -> Failure {
    for line in lines(problems) {
        eprint_line!("{line}");
    }
    let has = |fault: Fault| problems.iter().any(|problem| problem.fault == fault);
    let kind = match () {
        () if has(Fault::Malformed) => Kind::Malformed,
        () if has(Fault::Missing) => Kind::Missing,
        () => Kind::Permission,
    };
    let errors = if problems.len() == 1 {
        "an error".to_owned()
    } else {
        format!("{} errors", problems.len())
    };
    Failure::new(kind, format_args!("{} has {errors}", file.display()))
}

pub(crate) fn check(arguments: &CheckArgs, layers: &Registry) -> Result<(), Failure> {
    let file = &arguments.file;
    let (config, mut problems) = Config::read(file);
    // Referenced files must exist too. Their errors are reported together with those in the
    // configuration itself.
    let opened = config.as_ref().map(|config| make(config, layers, None));
    let mut warnings: Vec<_> =
        config.as_ref().map(|config| config.warnings.clone()).unwrap_or_default();
    match opened {
        Some(Ok(gateway)) => warnings.extend(gateway.warnings()),
        Some(Err(more)) => problems.extend(more),
        None => {}
    }
    for warning in &warnings {
        eprint_line!("warning: {warning}");
    }
    let config = match config {
        Some(config) if problems.is_empty() => config,
        _ => return Err(failure(file, &config::in_order(problems))),
    };
    let routes: usize = config.sites.iter().map(|site| site.routes.len()).sum();
    print(&format!(
        "{}: {}, {}, {}: {}\n",
        file.display(),
        counted(config.sites.len(), "site"),
        counted(routes, "route"),
        counted(config.upstreams.len(), "upstream"),
        if warnings.is_empty() {
            "no warnings".to_owned()
        } else {
            counted(warnings.len(), "warning")
        }
    ))
}

pub(crate) fn schema(layers: &Registry) -> Result<(), Failure> {
    print(&format!("{:#}\n", config::schema(layers)))
}

pub(crate) fn format(arguments: &FmtArgs) -> Result<ExitCode, Failure> {
    let mut is_in_style = true;
    for file in &arguments.files {
        let is_standard = file.as_os_str() == "-";
        let text = if is_standard {
            io::read_to_string(io::stdin())
        } else {
            std::fs::read_to_string(file)
        };
        let text = text.map_err(|error| unreadable(file, &error))?;
        let formatted = config::format(&text).map_err(|error| {
            let line = error
                .span()
                .map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            Failure::new(
                Kind::Malformed,
                format_args!("{}:{line}: {}", file.display(), error.message()),
            )
        })?;
        match () {
            () if arguments.check => {
                if formatted != text {
                    is_in_style = false;
                    print(&format!("{}\n", file.display()))?;
                }
            }
            () if is_standard => print(&formatted)?,
            () if formatted != text => replace(file, &formatted)?,
            () => {}
        }
    }
    Ok(if is_in_style { ExitCode::SUCCESS } else { ExitCode::from(Kind::Malformed as u8) })
}

fn unreadable(file: &Path, error: &io::Error) -> Failure {
    let (kind, hint) = match error.kind() {
        io::ErrorKind::PermissionDenied => (Kind::Permission, "make it readable for this user"),
        io::ErrorKind::InvalidData => (Kind::Malformed, "save it as UTF-8"),
        _ => (Kind::Missing, "check the path"),
    };
    Failure::new(kind, format_args!("{}: {error}", file.display())).with_hint(hint)
}

/// Replaces a file atomically: at any moment it is the old or the new one, with the same owner.
/// Symbolic links are followed.
fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let place = std::fs::canonicalize(file)?;
        let folder = place.parent().unwrap_or(Path::new("."));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(text.as_bytes())?;
        let old = std::fs::metadata(&place)?;
        let made = new.as_file().metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            std::os::unix::fs::fchown(new.as_file(), Some(old.uid()), Some(old.gid()))?;
        }
        new.as_file().set_permissions(old.permissions())?;
        new.as_file().sync_all()?;
        new.persist(&place).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| {
        let (kind, hint) = match error.kind() {
            io::ErrorKind::PermissionDenied => (
                Kind::Permission,
                "make its folder writable for this user, or run this as its owner",
            ),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (Kind::Output, "free disk space: the file is written as a new copy")
            }
            _ => (Kind::Output, "format a copy where it can be written"),
        };
        Failure::new(kind, format_args!("{} is unchanged: {error}", file.display())).with_hint(hint)
    })
}

fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result
            .map_err(|error| Failure::new(Kind::Output, format_args!("cannot write: {error}"))),
    }
}
