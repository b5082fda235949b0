//! Links between real namespaces: traffic that adds up, commands, and complete cleanup.
//!
//! Runs as root, or as any user where user namespaces and the TUN device are accessible. Where
//! neither is permitted, the tests fail and give the reason.

#![expect(
    clippy::unwrap_used,
    reason = "a test may panic; the lint's exception knows only #[test] functions"
)]

mod commands;
mod hostile;
mod program;
mod traces;
mod traffic;
mod user;

use libtest_mimic::{Arguments, Trial};

fn main() {
    if let Some(code) = program::main_if_asked() {
        std::process::exit(code);
    }
    // Before the harness starts its threads.
    if let Err(error) = pronghorn_link::enter_user_namespace_unless_root() {
        eprintln!("cannot test real namespaces: {error}");
        std::process::exit(1);
    }
    let trial = |(name, test): &(&'static str, fn())| {
        let test = *test;
        Trial::test(*name, move || {
            test();
            Ok(())
        })
    };
    let everyone = [traffic::TESTS, traces::TESTS, hostile::TESTS, commands::TESTS];
    let mut trials: Vec<Trial> = everyone.into_iter().flatten().map(trial).collect();
    let root = rustix::process::geteuid().is_root();
    trials.extend(
        commands::TESTS_FOR_ROOT
            .iter()
            .chain(user::TESTS_FOR_ROOT)
            .map(|test| trial(test).with_ignored_flag(!root)),
    );
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
