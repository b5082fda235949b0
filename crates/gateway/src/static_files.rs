//! Static files of a folder.

pub(crate) mod chunk;
pub(crate) mod coding;
pub(crate) mod conditional;
pub(crate) mod content_types;
pub(crate) mod errors;
pub(crate) mod file_body;
pub(crate) mod file_cache;
pub(crate) mod file_state;
mod files;
mod handler;
pub(crate) mod listing;
pub(crate) mod listings;
pub(crate) mod multipart;
pub(crate) mod path;
pub(crate) mod range;
pub(crate) mod requested_file;
pub(crate) mod root;
pub(crate) mod versions;

pub use self::files::StaticFiles;
pub use self::handler::FileHandler;
