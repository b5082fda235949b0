//! `--limit` and `--list-limits`.

use std::io::{self, Write};

use pronghorn_engine::{LimitError, Limits, Unit};

use crate::failure::{Failure, Kind};
use crate::plural::counted;

/// A checked `--limit NAME=VALUE`.
#[derive(Clone, Debug)]
pub(crate) struct LimitArgument {
    name: String,
    value: String,
}

pub(crate) fn parse(text: &str) -> Result<LimitArgument, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("use NAME=VALUE, for example idle_timeout=60s; --list-limits lists the names"
            .to_owned());
    };
    let (name, value) = (name.trim().replace('-', "_"), value.trim().to_owned());
    Limits::default().with_named(&name, &value).map_err(|error| match error {
        LimitError::Unknown { nearest: None, .. } => {
            format!("{error}; --list-limits lists the names")
        }
        error => error.to_string(),
    })?;
    Ok(LimitArgument { name, value })
}

/// Parses a number of bytes, in the notation of limits.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let bytes = Unit::Bytes.read(text).and_then(|bytes| i32::try_from(bytes).ok());
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| "use a number of bytes, such as 4MiB or 65536, below 2GiB".to_owned())
}

/// Applies the arguments to `limits`.
pub(crate) fn apply(mut limits: Limits, arguments: &[LimitArgument]) -> Result<Limits, LimitError> {
    for LimitArgument { name, value } in arguments {
        limits = limits.with_named(name, value)?;
    }
    Ok(limits)
}

/// Prints all limits in effect, and the maximum memory that they allow.
pub(crate) fn list(limits: &Limits, workers: usize) -> Result<(), Failure> {
    match io::stdout().write_all(table(limits, workers).as_bytes()) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| {
            Failure::new(Kind::Output, format_args!("cannot write the limits: {error}"))
        }),
    }
}

fn table(limits: &Limits, workers: usize) -> String {
    let line = |name: &str, value: &str, scope: &str, memory: &str, counter: &str| {
        format!("{name:<27} {value:>10}  {scope:<15} {memory:>10}  {counter}\n")
    };
    let rows = Limits::table().iter().map(|limit| {
        let memory = match limit.worst_case_bytes(limits) {
            0 => "-".to_owned(),
            bytes => rounded(bytes),
        };
        line(
            limit.name,
            &limit.unit.write(limit.value(limits)),
            &limit.scope.to_string(),
            &memory,
            limit.counter,
        )
    });
    let total = rounded(limits.worst_case_bytes(workers));
    let end = format!(
        "\nIf peers use all of it at once, a server with {} may allocate {total} for them.\n",
        counted(workers, "worker")
    );
    std::iter::once(line("limit", "value", "for each", "memory", "counter"))
        .chain(rows)
        .chain([end])
        .collect()
}

/// Formats bytes in the largest unit that leaves at least one digit before the point.
fn rounded(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if value.fract() == 0.0 {
        Unit::Count.write(value as u64) + " " + unit
    } else {
        format!("{value:.1} {unit}")
    }
}
