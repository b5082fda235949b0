//! Responses if a file cannot be served.

use http::{StatusCode, Uri};
use pronghorn_engine::Response;
use rustix::io::Errno;

use crate::responses::{not_found, redirect_to_folder, text};

/// Returns whether the error means that no such file exists.
pub(crate) fn is_missing(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR)
}

pub(crate) fn answer_without_file(error: Errno, uri: &Uri) -> Response {
    match error {
        Errno::ISDIR if uri.path().ends_with('/') => not_found(),
        Errno::ISDIR => redirect_to_folder(uri),
        _ => match status_without_file(error) {
            StatusCode::FORBIDDEN => text(StatusCode::FORBIDDEN, "forbidden\n"),
            StatusCode::NOT_FOUND => not_found(),
            StatusCode::SERVICE_UNAVAILABLE => text(StatusCode::SERVICE_UNAVAILABLE, "try again\n"),
            status => text(status, "cannot read the file\n"),
        },
    }
}

pub(super) fn status_without_file(error: Errno) -> StatusCode {
    match error {
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        // Paths and links that lead out of the folder look the same as missing files.
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::XDEV
        | Errno::LOOP
        | Errno::NAMETOOLONG
        | Errno::NXIO
        | Errno::INVAL => StatusCode::NOT_FOUND,
        Errno::AGAIN | Errno::MFILE | Errno::NFILE => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
