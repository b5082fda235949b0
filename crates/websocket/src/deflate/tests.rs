use super::*;

fn answer(options: Options, offer: &str) -> Option<String> {
    options.answer([offer]).map(|(_, answer)| answer)
}

const BOTH: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

#[test]
fn server_answers_offers_according_to_its_options() {
    let keeping = Options::default().with_own_context(15).with_peer_context(15);
    for (options, offer, expected) in [
        (Options::default(), "permessage-deflate", Some(BOTH)),
        (Options::default(), "permessage-deflate; client_max_window_bits", Some(BOTH)),
        (keeping, "permessage-deflate; client_max_window_bits", Some("permessage-deflate")),
        (
            keeping,
            "permessage-deflate; server_no_context_takeover",
            Some("permessage-deflate; server_no_context_takeover"),
        ),
        (
            keeping,
            "permessage-deflate; client_no_context_takeover",
            Some("permessage-deflate; client_no_context_takeover"),
        ),
        (
            keeping,
            "permessage-deflate; server_max_window_bits=10",
            Some("permessage-deflate; server_max_window_bits=10"),
        ),
        (
            keeping,
            "permessage-deflate;server_max_window_bits=\"10\"",
            Some("permessage-deflate; server_max_window_bits=10"),
        ),
        (
            keeping.with_own_context(9),
            "permessage-deflate",
            Some("permessage-deflate; server_max_window_bits=9"),
        ),
        (
            keeping.with_peer_context(10),
            "permessage-deflate; client_max_window_bits",
            Some("permessage-deflate; client_max_window_bits=10"),
        ),
        (keeping.with_peer_context(10), "permessage-deflate", Some("permessage-deflate")),
        (
            keeping,
            "x-other, permessage-deflate; unknown, permessage-deflate",
            Some("permessage-deflate"),
        ),
        // The library does not support a window of 256 bytes.
        (keeping, "permessage-deflate; server_max_window_bits=8", None),
        (
            keeping,
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            Some("permessage-deflate"),
        ),
        (keeping, "permessage-deflate; server_max_window_bits", None),
        (keeping, "permessage-deflate; server_max_window_bits=16", None),
        (keeping, "permessage-deflate; server_max_window_bits=010", None),
        (keeping, "permessage-deflate; server_max_window_bits=+9", None),
        (keeping, "permessage-deflate; server_no_context_takeover=1", None),
        (
            keeping,
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            None,
        ),
        (keeping, "permessage-bzip2", None),
        (keeping, "", None),
    ] {
        assert_eq!(answer(options, offer).as_deref(), expected, "{offer}");
    }
}

#[test]
fn client_accepts_only_what_it_offered() {
    let keeping = Options::default().with_own_context(12).with_peer_context(12);
    assert_eq!(Options::default().offer(), BOTH);
    assert_eq!(keeping.offer(), "permessage-deflate; server_max_window_bits=12");
    assert_eq!(Options::default().accept([]).unwrap(), None);
    for (options, answer, taken) in [
        (Options::default(), BOTH, true),
        (Options::default(), "permessage-deflate", false),
        (keeping, "permessage-deflate; server_max_window_bits=12", true),
        (
            keeping,
            "permessage-deflate; server_max_window_bits=10; server_no_context_takeover",
            true,
        ),
        (keeping, "permessage-deflate; server_max_window_bits=13", false),
        (keeping, "permessage-deflate", false),
        (
            keeping,
            "permessage-deflate; server_max_window_bits=12; client_max_window_bits=12",
            false,
        ),
        (keeping, "x-other", false),
        (keeping, "permessage-deflate; server_max_window_bits=12, permessage-deflate", false),
    ] {
        assert_eq!(options.accept([answer]).is_ok(), taken, "{answer}");
    }
    let agreed = keeping
        .accept(["permessage-deflate; server_max_window_bits=12; client_no_context_takeover"])
        .unwrap()
        .unwrap();
    assert!(!agreed.keeps_context() && agreed.keeps_peer_context());
}

#[test]
fn client_accepts_each_answer_of_the_server() {
    for own in [None, Some(9), Some(15)] {
        for peer in [None, Some(9), Some(15)] {
            let mut options = Options::default();
            options = own.map_or(options, |bits| options.with_own_context(bits));
            options = peer.map_or(options, |bits| options.with_peer_context(bits));
            let (server, answer) = options.answer([options.offer().as_str()]).unwrap();
            let client = options.accept([answer.as_str()]).unwrap().unwrap();
            assert_eq!(
                (server.own_takeover, server.peer_takeover),
                (client.peer_takeover, client.own_takeover)
            );
            assert!(
                server.window_bits <= client.peer_window_bits
                    && client.window_bits <= server.peer_window_bits,
                "{server:?} {client:?}"
            );
        }
    }
}
