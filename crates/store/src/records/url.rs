//! Opening of a record store by URL: configuration selects the kind of store.

use super::{
    DatabaseTls, Format, LinkConfig, RecordError, RecordStore, RedisCluster, RedisClusterConfig, RedisRecords,
};
use std::time::Duration;

/// URL and options of a record store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl {
    /// `redis://HOST:PORT`, `redis+unix:///PATH`, `redis-cluster://HOST:PORT,HOST:PORT` or
    /// `mongodb://HOST:PORT`; with TLS `rediss://` and `rediss-cluster://`.
    pub url: String,
    /// Prefix of the keys; for MongoDB the name of the database.
    pub prefix: String,
    /// Lifetime of a record without commits.
    pub life: Duration,
    /// Timeout of an operation.
    pub timeout: Duration,
    /// Encoding of the parts.
    pub format: Format,
    /// Redis Cluster: number of replicas that must acknowledge a commit.
    pub confirm: u16,
    /// Used by `rediss://` and `rediss-cluster://`.
    pub tls: DatabaseTls,
}

/// Creates a handle of a record store. It sends no request.
///
/// # Errors
///
/// Returns [`RecordError::Down`] if the URL has an unknown scheme.
pub fn open(place: &StoreUrl) -> Result<Box<dyn RecordStore>, RecordError> {
    let StoreUrl { url, prefix, life, timeout, format, confirm, tls } = place.clone();
    let secured = url.starts_with("rediss");
    if let Some(nodes) = ["redis-cluster://", "rediss-cluster://"].iter().find_map(|scheme| url.strip_prefix(scheme)) {
        let nodes = nodes.split(',').filter(|node| !node.is_empty()).map(str::to_owned).collect();
        let tls = secured.then_some(tls);
        let config = RedisClusterConfig { nodes, timeout, confirm, accepts_fewer: true, tls };
        return Ok(Box::new(RedisCluster::new(config, &prefix, life)));
    }
    if ["redis://", "rediss://", "redis+unix://", "unix://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Ok(Box::new(RedisRecords::new(LinkConfig { url, timeout, tls }, &prefix, life)));
    }
    if url.starts_with("mongodb://") {
        return mongo(url, prefix, life, (timeout, format));
    }
    let known = "redis://, rediss://, redis+unix://, redis-cluster://, rediss-cluster:// or mongodb://";
    Err(RecordError::Down(format!("{url} is no URL of a database: it begins with {known}")))
}

#[cfg(feature = "mongodb")]
fn mongo(
    url: String,
    database: String,
    life: Duration,
    (timeout, format): (Duration, Format),
) -> Result<Box<dyn RecordStore>, RecordError> {
    let config = super::MongoConfig { url, database, timeout, format };
    Ok(Box::new(super::MongoRecords::new(&config, life)?))
}

#[cfg(not(feature = "mongodb"))]
fn mongo(url: String, _: String, _: Duration, _: (Duration, Format)) -> Result<Box<dyn RecordStore>, RecordError> {
    Err(RecordError::Down(format!("{url} is asked by a build with the feature mongodb, which this one has not")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_is_selected_by_url() {
        let place = |url: &str| StoreUrl {
            url: url.to_owned(),
            prefix: "vireo".into(),
            life: Duration::from_secs(60),
            timeout: Duration::from_millis(100),
            format: Format::Json,
            confirm: 1,
            tls: DatabaseTls::default(),
        };
        let name = super::super::Name { collection: "ue", id: 1 };
        for url in [
            "redis://127.0.0.1:1",
            "rediss://127.0.0.1:1",
            "rediss-cluster://127.0.0.1:1",
            "redis-cluster://127.0.0.1:1,127.0.0.1:2",
            "mongodb://127.0.0.1:1",
        ] {
            let answer = open(&place(url)).and_then(|mut records| records.load(&[name]));
            assert!(answer.is_err_and(|error| error.is_retryable()), "{url}: nobody is there");
        }
        assert!(open(&place("postgres://127.0.0.1")).is_err());
    }
}
