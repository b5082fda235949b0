//! Differences between a reloaded configuration and the previous one.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::configuration::Config;

impl Config {
    /// Returns the differences from `before`, one line per site, upstream and table, as written in
    /// the files. Hosts that were added or removed are not included. The contents of referenced
    /// files, such as certificates and secrets, are not compared.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let (now, before) = (RawConfig::of(self), RawConfig::of(before));
        let mut changes = Vec::new();
        for (hosts, site) in &now.sites {
            if let Some(keys) = before
                .sites
                .get(hosts)
                .map(|before| different(before, site))
                .filter(|keys| !keys.is_empty())
            {
                changes.push(format!("changed: site {hosts}: {}", keys.join(", ")));
            }
        }
        // A site whose list of hosts changed counts as another site; its hosts are reported
        // elsewhere.
        changes.extend(
            now.sites
                .keys()
                .filter(|hosts| !before.sites.contains_key(*hosts))
                .map(|hosts| format!("added: site {hosts}")),
        );
        changes.extend(
            before
                .sites
                .keys()
                .filter(|hosts| !now.sites.contains_key(*hosts))
                .map(|hosts| format!("removed: site {hosts}")),
        );
        for (name, upstream) in &now.upstreams {
            match before.upstreams.get(name) {
                None => changes.push(format!("added: upstream {name}")),
                Some(before) => {
                    let keys = different(before, upstream);
                    if !keys.is_empty() {
                        changes.push(format!("changed: upstream {name}: {}", keys.join(", ")));
                    }
                }
            }
        }
        changes.extend(
            before
                .upstreams
                .keys()
                .filter(|name| !now.upstreams.contains_key(*name))
                .map(|name| format!("removed: upstream {name}")),
        );
        for table in ["server", "log", "acme", "fleet", "limits", "admin"] {
            let of = |written: &RawConfig| written.tables.get(table).cloned().unwrap_or_default();
            let keys = different(&of(&before), &of(&now));
            if !keys.is_empty() {
                changes.push(format!("changed: [{table}]: {}", keys.join(", ")));
            }
        }
        if now.sites_in_order != before.sites_in_order && changes.is_empty() {
            changes.push("changed: the order of the sites".to_owned());
        }
        changes
    }
}

/// A configuration as written in its files.
#[derive(Default)]
struct RawConfig {
    /// Sites by their hosts.
    sites: BTreeMap<String, Table>,
    sites_in_order: Vec<String>,
    upstreams: BTreeMap<String, Table>,
    /// Other tables, from the main file.
    tables: BTreeMap<String, Table>,
}

impl RawConfig {
    fn of(config: &Config) -> Self {
        let mut written = Self::default();
        for (index, text) in config.texts().enumerate() {
            let Ok(file) = text.parse::<Table>() else { continue };
            for (key, value) in file {
                match (key.as_str(), value) {
                    ("sites", Value::Array(sites)) => {
                        for site in sites {
                            written.add_site(site);
                        }
                    }
                    ("upstreams", Value::Table(upstreams)) => {
                        let tables = upstreams
                            .into_iter()
                            .filter_map(|(name, value)| Some((name, as_table(value)?)));
                        written.upstreams.extend(tables);
                    }
                    (_, Value::Table(table)) if index == 0 => {
                        drop(written.tables.insert(key, table));
                    }
                    _ => {}
                }
            }
        }
        written
    }

    fn add_site(&mut self, site: Value) {
        let Value::Table(site) = site else { return };
        let hosts = site
            .get("hosts")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let hosts = hosts.collect::<Vec<_>>().join(", ");
        self.sites_in_order.push(hosts.clone());
        self.sites.insert(hosts, site);
    }
}

fn as_table(value: Value) -> Option<Table> {
    match value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

/// Returns the keys whose values differ or that only one table has. For a list of tables, includes
/// the numbers of those that differ.
fn different(before: &Table, now: &Table) -> Vec<String> {
    let mut keys: Vec<&String> =
        before.keys().chain(now.keys()).filter(|key| before.get(*key) != now.get(*key)).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .map(|key| match (before.get(key), now.get(key)) {
            (Some(Value::Array(before)), Some(Value::Array(now)))
                if before.len() == now.len() && now.iter().all(Value::is_table) =>
            {
                let numbers =
                    (1..).zip(before.iter().zip(now)).filter(|(_, (before, now))| before != now);
                let numbers: Vec<_> =
                    numbers.map(|(number, _): (usize, _)| number.to_string()).collect();
                format!("{key} {}", numbers.join(" and "))
            }
            _ => key.clone(),
        })
        .collect()
}
