//! Replays the fuzzer's findings as ordinary tests.

use std::path::Path;

use pronghorn_fuzz::TARGETS;

#[test]
fn every_kept_input_is_handled() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .collect();
        assert!(!files.is_empty(), "{name}: no inputs to replay");
        for file in files {
            let path = file.unwrap().path();
            eprintln!("{}", path.display());
            target(&std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn every_folder_has_its_target() {
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")).unwrap();
    let mut folders: Vec<_> =
        folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    assert_eq!(folders, TARGETS.map(|(name, _)| name));
}
