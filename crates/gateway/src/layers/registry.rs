//! Layers by name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pronghorn_engine::BodyError;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_service::Service;

use super::{Layer, LocalService, Request, WorkerContext};
use crate::config::{Config, Layer as LayerSettings, Problem, nearest};
use crate::proxy::{FailureLog, FailureLogs};

type Made = Result<Arc<dyn Layer>, Vec<Problem>>;
type Factory = Arc<dyn Fn(&Config, &LayerSettings, &FailureLogs) -> Made + Send + Sync>;

/// The layers that configurations can use, by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Registry(BTreeMap<String, Registered>);

#[derive(Clone)]
struct Registered {
    factory: Factory,
    schema: fn() -> Value,
}

/// The context in which a layer is created, besides its options.
pub struct LayerContext<'a> {
    config: &'a Config,
    layer: &'a LayerSettings,
    failure_logs: &'a FailureLogs,
}

impl LayerContext<'_> {
    /// Resolves a path relative to the configuration file that names it.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.config.path(&self.layer.location, path)
    }

    /// Returns the log for failures of a server that the layer uses.
    pub(super) fn failures(&self) -> Arc<FailureLog> {
        self.failure_logs.of(&self.layer.name)
    }
}

impl Registry {
    /// Returns a registry without layers.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Adds a layer that `make` creates from its options, or replaces the layer of this name.
    ///
    /// The options are a type that is deserialised from TOML. Unknown keys and values of a wrong
    /// type are reported with their position, and errors of `make` at the layer.
    #[must_use]
    pub fn with<O, L>(
        mut self,
        name: &str,
        make: impl Fn(O, &LayerContext<'_>) -> Result<L, String> + Send + Sync + 'static,
    ) -> Self
    where
        O: DeserializeOwned + JsonSchema,
        L: Layer,
    {
        let factory =
            move |config: &Config, layer: &LayerSettings, failure_logs: &FailureLogs| -> Made {
                let mut problems = Vec::new();
                let options = config.options::<O>(layer, &mut problems);
                let Some(options) = options.filter(|_| problems.is_empty()) else {
                    return Err(problems);
                };
                let made = make(options, &LayerContext { config, layer, failure_logs });
                made.map(|made| Arc::new(made) as Arc<dyn Layer>)
                    .map_err(|error| vec![config.problem(&layer.location, error)])
            };
        self.0.insert(
            name.to_owned(),
            Registered { factory: Arc::new(factory), schema: schema_of::<O> },
        );
        self
    }

    /// Adds a tower layer that `make` creates from its options; see [`Registry::with`].
    #[must_use]
    pub fn with_tower<O, L, S, B>(
        self,
        name: &str,
        make: impl Fn(O) -> Result<L, String> + Send + Sync + 'static,
    ) -> Self
    where
        O: DeserializeOwned + JsonSchema,
        L: tower_layer::Layer<LocalService, Service = S> + Send + Sync + 'static,
        S: Service<Request, Response = http::Response<B>> + Clone + 'static,
        S::Error: Into<BodyError>,
        B: http_body::Body<Data = Bytes> + 'static,
        B::Error: Into<BodyError>,
    {
        self.with(name, move |options, _: &LayerContext<'_>| make(options).map(Tower))
    }

    /// Returns the names of all layers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the JSON Schema of each layer's options, by name.
    pub fn schemas(&self) -> impl Iterator<Item = (&str, Value)> {
        self.0.iter().map(|(name, registered)| (name.as_str(), (registered.schema)()))
    }

    /// Creates a layer of a configuration.
    pub(crate) fn make(
        &self,
        config: &Config,
        layer: &LayerSettings,
        failure_logs: &FailureLogs,
    ) -> Made {
        if let Some(registered) = self.0.get(&layer.name) {
            return (registered.factory)(config, layer, failure_logs);
        }
        let problem = config
            .problem(&layer.location.key("name"), format_args!("unknown layer {:?}", layer.name));
        Err(vec![problem.with_hint(match nearest(&layer.name, self.names()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("known layers: {}", self.names().collect::<Vec<_>>().join(", ")),
        })])
    }
}

/// Returns the schema of the options, without references, since it becomes a part of another
/// schema.
fn schema_of<O: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<O>().to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
        schema.remove("title");
    }
    schema
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

struct Tower<L>(L);

impl<L, S, B> Layer for Tower<L>
where
    L: tower_layer::Layer<LocalService, Service = S> + Send + Sync + 'static,
    S: Service<Request, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BodyError>,
    B: http_body::Body<Data = Bytes> + 'static,
    B::Error: Into<BodyError>,
{
    fn around(&self, inner: LocalService, _: &WorkerContext) -> LocalService {
        LocalService::new(self.0.layer(inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(layers: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pronghorn.toml");
        let site = "[server]\nlisten = [\"http://127.0.0.1:0\"]\n[[sites]]\nhosts = \
            [\"a\"]\n[[sites.routes]]\nrespond = \"x\"\n";
        std::fs::write(&file, format!("{site}layers = {layers}\n")).expect("write");
        let environment = |name: &str| (name == "LIMIT").then(|| "5s".to_owned());
        let config = Config::load_with(&file, &environment).expect("it is right");
        let layers =
            config.sites.iter().flat_map(|site| &site.routes).flat_map(|route| &route.layers);
        let told = layers
            .filter_map(|layer| {
                Registry::standard().make(&config, layer, &FailureLogs::default()).err()
            })
            .flatten();
        // Lines without the folder.
        let line = |text: String| {
            text.rsplit_once("pronghorn.toml:").map_or(text.clone(), |(_, rest)| rest.to_owned())
        };
        told.map(|problem| line(problem.to_string())).collect()
    }

    #[test]
    fn valid_layers_are_built() {
        assert_eq!(
            problems(
                "[\"compress\", { name = \"timeout\", after = \"${LIMIT}\" }, { name = \"allow\", \
                    addresses = [] }]"
            ),
            [""; 0]
        );
    }

    #[test]
    fn invalid_options_are_reported_at_their_position() {
        for (layers, expected) in [
            ("[\"compres\"]", "7:11: unknown layer \"compres\"; did you mean \"compress\"?"),
            ("[{ name = \"x\" }]", "7:13: unknown layer \"x\"; known layers: "),
            (
                "[{ name = \"timeout\", after = \"5s\", aftr = 1 }]",
                "7:45: unknown key \"aftr\"; did you mean \"after\"?",
            ),
            ("[{ name = \"timeout\", after = \"soon\" }]", "7:39: invalid time \"soon\""),
            ("[\"timeout\"]", "7:11: the layer \"timeout\" has no `after`; add it"),
            ("[{ name = \"compress\", encodings = [\"bz\"] }]", "did you mean \"br\"?"),
            (
                "[{ name = \"rate-limit\", requests = 0 }]",
                "7:11: invalid `requests` or `burst`: allow at least 1",
            ),
        ] {
            let told = problems(layers);
            assert!(told.iter().any(|line| line.contains(expected)), "{layers}: {told:#?}");
        }
    }

    /// CPU time of this thread, which other work on the machine does not change.
    fn cpu_seconds() -> f64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    #[test]
    fn cost_of_many_layers_grows_in_proportion() {
        let cost = |count: usize| {
            let layers = (1..=count)
                .map(|number| format!("{{ name = \"timeout\", after = \"{number}s\" }}"));
            let layers = format!("[{}]", layers.collect::<Vec<_>>().join(", "));
            let before = cpu_seconds();
            assert_eq!(problems(&layers), [""; 0]);
            cpu_seconds() - before
        };
        cost(50);
        // If the whole file were parsed again for each layer, it would be 64 times as much.
        let (few, many) = (cost(50), cost(400));
        assert!(many < 24.0 * few, "{few} s for 50 layers, {many} s for 400");
    }
}
