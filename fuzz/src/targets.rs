//! Paths and routes: the route found is also the one for the path as other servers interpret it, or
//! the path is rejected.

use pronghorn_target::models::Case;
use pronghorn_target::{Pattern, Spelling, authority};

pub(crate) fn run(data: &[u8]) {
    let mut case = Case::of(data);
    case.check();
    // The same routes with an arbitrary combination of path, pattern and host.
    let text = String::from_utf8_lossy(data);
    case.path = format!("/{text}");
    case.check();
    if let Ok(Some(spelling)) = Spelling::of(&case.path) {
        let again = Spelling::of(spelling.passed()).expect("the forwarded path is canonical");
        assert!(again.is_none_or(|again| again == spelling));
    }
    if let Ok(pattern) = Pattern::parse(&text) {
        assert_eq!(Pattern::parse(&pattern.to_string()), Ok(pattern));
    }
    for secure in [false, true] {
        if let Ok(Some(written)) = authority(&text, secure) {
            assert_eq!(authority(&written, secure), Ok(None), "{written}");
        }
    }
}
