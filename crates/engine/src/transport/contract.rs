//! The contract of every transport behind [`Transport`], as tests of the trait alone.
//!
//! The tests run a client and a server of a [`Subject`] over the simulation's network, on its
//! clock. Another transport gets the same tests with one more line at the end of this file and an
//! implementation of [`Subject`].

mod bottleneck;
mod connections;
mod datagrams;
mod pair;
mod panics;
mod paths;
mod streams;
mod subject;

use self::pair::{End, Pair};
use self::subject::{Limits, Subject};

/// Runs each test of a module with a transport.
macro_rules! run_tests {
    ($subject:ty, $module:ident: $($test:ident)+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::super::$module::$test::<$subject>();
                }
            )+
        }
    };
}

/// The part about connections.
macro_rules! connections {
    ($subject:ty) => {
        run_tests!($subject, connections:
            handshake_is_told_on_both_sides_and_once
            handshake_survives_the_loss_of_any_of_its_packets
            handshake_survives_a_forged_retry
            close_tells_the_peer_code_and_reason
            close_is_told_although_the_window_is_full
            key_of_closed_connection_is_invalid
            received_data_is_readable_at_close_event
            key_is_not_given_to_another_connection
            silent_peer_is_given_up_after_the_idle_timeout
            client_learns_the_idle_timeout_of_its_server
            connection_of_a_server_that_restarted_is_reset
            client_is_told_that_no_new_connection_is_taken
            connections_over_the_limit_are_refused
            client_proves_its_address_when_handshakes_pile_up
            foreign_datagrams_leave_nothing_behind
            answers_to_foreign_datagrams_are_bounded
            unknown_version_is_answered_with_the_known_one
            packets_name_the_worker_that_issued_their_connection_id
            late_timeout_sends_no_burst
            postponed_deadline_causes_no_wakeup
            connection_survives_a_new_port
            transmits_keep_to_their_segments
        );
    };
}

/// The whole contract, for one transport.
macro_rules! contract {
    ($name:ident, $subject:ty) => {
        mod $name {
            connections!($subject);
            run_tests!($subject, paths:
                first_flight_is_the_window_that_was_asked_for
                slow_start_ends_before_much_is_lost
                cubic_fills_a_path_without_loss
                bbr_fills_a_path_without_loss
                bbr_takes_no_single_loss_for_congestion
                bbr_shares_a_path_with_bbr
                bbr_shares_a_path_with_cubic
                bbr_fills_a_path_whose_acknowledgements_come_in_groups
                bbr_loses_little_in_a_short_queue
                loss_based_controllers_yield_to_loss
                responses_in_a_row_take_a_round_trip_each
                first_document_takes_a_round_trip
                initial_window_costs_little_in_short_queues
            );
            run_tests!($subject, streams:
                bytes_arrive_whole_and_in_order
                bytes_arrive_whole_over_a_bad_network
                streams_are_numbered_as_quic_says
                unread_stream_holds_the_writer_back
                unacknowledged_bytes_are_bounded
                full_connection_is_told_from_a_shut_stream
                acknowledged_bytes_are_counted
                sides_that_both_send_acknowledge_in_time
                blocked_read_is_followed_by_an_event
                read_goes_on_where_it_was_left
                end_without_data_is_an_event
                each_finished_stream_is_acknowledged_once
                reset_reaches_the_reader_and_ends_writing
                reset_after_the_end_prevents_its_acknowledgement
                stop_reaches_the_writer
                stop_after_the_end_is_harmless
                stream_limit_holds_until_a_stream_is_done
                client_that_uses_its_streams_is_allowed_all_there_may_be
                one_connection_does_not_hold_up_another
                long_path_is_filled
                unread_stream_does_not_hold_up_another_one
                write_keeps_to_its_limit
                reset_is_told_before_what_came_first_is_read
                urgent_stream_leaves_first
                streams_of_one_urgency_take_turns
                whole_streams_in_order_leave_one_after_the_other
            );
            run_tests!($subject, datagrams:
                datagrams_arrive_as_they_were_sent
                datagrams_wait_up_to_a_bound
                datagrams_open_no_window
                lost_datagram_is_not_repeated
                datagrams_are_refused_unless_both_sides_take_them
                peer_may_open_more_streams_once_it_is_allowed
            );
        }
    };
}

contract!(quinn, super::super::subject::OnQuinn);

/// Parking ends with the handshake.
mod parked_quinn {
    connections!(super::super::subject::OnParkedQuinn);
}
