//! Loaded modules. A process initializes each of them once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};

use super::error::Pkcs11Error;

/// Modules stay loaded: other keys may use them, and modules with threads of their own cannot be
/// unloaded safely.
static MODULES: Mutex<BTreeMap<PathBuf, Pkcs11>> = Mutex::new(BTreeMap::new());

/// Returns the module at a path, loaded and initialized.
pub(super) fn load(path: &Path) -> Result<Pkcs11, Pkcs11Error> {
    if cfg!(target_feature = "crt-static") {
        return Err(Pkcs11Error::Static(path.to_owned()));
    }
    let key = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = modules.get(&key) {
        return Ok(module.clone());
    }
    let failed =
        |error: Error| Pkcs11Error::Module { path: path.to_owned(), reason: error.to_string() };
    let module = Pkcs11::new(path).map_err(failed)?;
    initialize(&module).map_err(failed)?;
    modules.insert(key, module.clone());
    Ok(module)
}

/// Initializes a module, unless it is initialized already.
pub(super) fn initialize(module: &Pkcs11) -> Result<(), Error> {
    match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => Ok(()),
        Err(error) => Err(error),
    }
}
