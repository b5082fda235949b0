//! The development certificate.

use std::path::PathBuf;

use pronghorn_certificates::{Loaded, user_folder};

use crate::addon::{Call, Native};
use crate::js::{Failure, Value};

pub(super) const FUNCTIONS: [(&str, Native); 1] =
    [("developmentCertificate", development_certificate)];

/// `developmentCertificate(folder or undefined)`: returns the folder with `cert.pem` and `key.pem`,
/// and the hash of the public key.
fn development_certificate(call: &Call<'_>) -> Result<Value, Failure> {
    let folder = if call.is_absent(0) {
        user_folder().ok_or(
            "there is no home folder to keep a certificate in: give developmentCertificate() a \
            folder",
        )?
    } else {
        PathBuf::from(call.string(0)?)
    };
    let loaded = Loaded::for_development(&folder)?;
    let object = call.env.object()?;
    let folder = folder.to_str().ok_or(
        "the folder's name is not valid Unicode: give developmentCertificate() another one",
    )?;
    call.env.set(object, "folder", call.env.string(folder))?;
    call.env.set(object, "spkiSha256", call.env.string(&loaded.spki_sha256))?;
    Ok(object)
}
