//! Layers by their names.

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

use super::{Layer, LocalService, OnWorker, Request};
use crate::config::{self, Config, Problem, nearest};
use crate::proxy::{Trouble, Troubles};

type Made = Result<Arc<dyn Layer>, Vec<Problem>>;
type Factory = Arc<dyn Fn(&Config, &config::Layer, &Troubles) -> Made + Send + Sync>;

/// What layers there are, by the names that configurations call them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Registry(BTreeMap<String, Registered>);

#[derive(Clone)]
struct Registered {
    factory: Factory,
    schema: fn() -> Value,
}

/// What a layer is made from besides its options.
pub struct Surroundings<'a> {
    config: &'a Config,
    layer: &'a config::Layer,
    troubles: &'a Troubles,
}

impl Surroundings<'_> {
    /// A path as seen from the folder of the file that names it.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.config.path(&self.layer.place, path)
    }

    /// For what goes wrong with a server that the layer asks.
    pub(super) fn trouble(&self) -> Arc<Trouble> {
        self.troubles.of(&self.layer.name)
    }
}

impl Registry {
    /// None at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The same with a layer that `make` makes from its options, in place of an older one of this name.
    ///
    /// The options are a type that TOML can be read as. Names that it does not have, and values of another type, are told where they
    /// stand; an error of `make` is told at the layer.
    #[must_use]
    pub fn with<O, L>(mut self, name: &str, make: impl Fn(O, &Surroundings<'_>) -> Result<L, String> + Send + Sync + 'static) -> Self
    where
        O: DeserializeOwned + JsonSchema,
        L: Layer,
    {
        let factory = move |config: &Config, layer: &config::Layer, troubles: &Troubles| -> Made {
            let mut problems = Vec::new();
            let options = config.options::<O>(layer, &mut problems);
            let Some(options) = options.filter(|_| problems.is_empty()) else { return Err(problems) };
            let made = make(options, &Surroundings { config, layer, troubles });
            made.map(|made| Arc::new(made) as Arc<dyn Layer>).map_err(|error| vec![config.problem(&layer.place, error)])
        };
        self.0.insert(name.to_owned(), Registered { factory: Arc::new(factory), schema: schema_of::<O> });
        self
    }

    /// The same with a layer of tower that `make` makes from its options; see [`Registry::with`].
    #[must_use]
    pub fn with_tower<O, L, S, B>(self, name: &str, make: impl Fn(O) -> Result<L, String> + Send + Sync + 'static) -> Self
    where
        O: DeserializeOwned + JsonSchema,
        L: tower_layer::Layer<LocalService, Service = S> + Send + Sync + 'static,
        S: Service<Request, Response = http::Response<B>> + Clone + 'static,
        S::Error: Into<BodyError>,
        B: http_body::Body<Data = Bytes> + 'static,
        B::Error: Into<BodyError>,
    {
        self.with(name, move |options, _: &Surroundings<'_>| make(options).map(Tower))
    }

    /// The names that there are.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The JSON Schema of the options of each layer, by its name.
    pub fn schemas(&self) -> impl Iterator<Item = (&str, Value)> {
        self.0.iter().map(|(name, registered)| (name.as_str(), (registered.schema)()))
    }

    /// Makes a layer of a configuration.
    pub(crate) fn make(&self, config: &Config, layer: &config::Layer, troubles: &Troubles) -> Made {
        if let Some(registered) = self.0.get(&layer.name) {
            return (registered.factory)(config, layer, troubles);
        }
        let problem = config.problem(&layer.place.key("name"), format_args!("there is no layer {:?}", layer.name));
        Err(vec![problem.with_hint(match nearest(&layer.name, self.names()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("there are {}", self.names().collect::<Vec<_>>().join(", ")),
        })])
    }
}

/// All in one piece: it becomes a part of another schema.
fn schema_of<O: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
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
    fn around(&self, inner: LocalService, _: &OnWorker) -> LocalService {
        LocalService::new(self.0.layer(inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(layers: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pronghorn.toml");
        let site = "[server]\nlisten = [\"http://127.0.0.1:0\"]\n[[sites]]\nhosts = [\"a\"]\n[[sites.routes]]\nrespond = \"x\"\n";
        std::fs::write(&file, format!("{site}layers = {layers}\n")).expect("write");
        let environment = |name: &str| (name == "LIMIT").then(|| "5s".to_owned());
        let config = Config::load_with(&file, &environment).expect("it is right");
        let layers = config.sites.iter().flat_map(|site| &site.routes).flat_map(|route| &route.layers);
        let told = layers.filter_map(|layer| Registry::standard().make(&config, layer, &Troubles::default()).err()).flatten();
        // Without the folder.
        let line = |text: String| text.rsplit_once("pronghorn.toml:").map_or(text.clone(), |(_, rest)| rest.to_owned());
        told.map(|problem| line(problem.to_string())).collect()
    }

    #[test]
    fn layers_that_are_right_are_made() {
        assert_eq!(problems("[\"compress\", { name = \"timeout\", after = \"${LIMIT}\" }, { name = \"allow\", addresses = [] }]"), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_told_where_it_stands() {
        for (layers, expected) in [
            ("[\"compres\"]", "7:11: there is no layer \"compres\"; did you mean \"compress\"?"),
            ("[{ name = \"x\" }]", "7:13: there is no layer \"x\"; there are "),
            ("[{ name = \"timeout\", after = \"5s\", aftr = 1 }]", "7:45: unknown key \"aftr\"; did you mean \"after\"?"),
            ("[{ name = \"timeout\", after = \"soon\" }]", "7:39: \"soon\""),
            ("[\"timeout\"]", "7:11: the layer \"timeout\" has no `after`; add it"),
            ("[{ name = \"compress\", encodings = [\"bz\"] }]", "did you mean \"br\"?"),
            ("[{ name = \"rate-limit\", requests = 0 }]", "7:11: with no requests the route cannot be used"),
        ] {
            let told = problems(layers);
            assert!(told.iter().any(|line| line.contains(expected)), "{layers}: {told:#?}");
        }
    }
}
