//! Tests of the engine's public API.

// Marked as tests so that lints treat their helpers as test code.
#[cfg(test)]
mod bad_servers;
#[cfg(test)]
mod client;
#[cfg(test)]
mod closing;
#[cfg(test)]
mod disconnects;
#[cfg(test)]
mod early_data;
#[cfg(test)]
mod early_responses;
#[cfg(test)]
mod embedding;
#[cfg(test)]
mod handler;
#[cfg(test)]
mod lifetimes;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod limits_table;
#[cfg(test)]
mod listen;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod parked;
#[cfg(test)]
mod pipelining;
#[cfg(test)]
mod priorities;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod raw_server;
#[cfg(test)]
mod raw_tls;
mod records;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod server_names;
#[cfg(test)]
mod steering;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tunnels;
mod unix_sockets;
#[cfg(test)]
mod unread;
#[cfg(test)]
mod unread_requests;
#[cfg(test)]
mod websockets;
#[cfg(test)]
mod webtransport;
