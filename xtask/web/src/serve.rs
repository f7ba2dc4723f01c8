//! A static server for this machine: the folder under a path of one's choice, as a host on the web would have it.

use anyhow::{Context, Result};
use axum::Router;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tower_http::services::ServeDir;

/// Serves until it is stopped.
pub(crate) fn run(folder: &Path, port: u16, base: &str) -> Result<()> {
    let files = ServeDir::new(folder);
    let router = match base.trim_matches('/') {
        "" => Router::new().fallback_service(files),
        base => Router::new().nest_service(&format!("/{base}"), files),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("port {port} cannot be had; try --port"))?;
        let base = base.trim_matches('/');
        let end = if base.is_empty() { "" } else { "/" };
        println!("http://{}/{base}{end}", listener.local_addr()?);
        axum::serve(listener, router).await?;
        Ok(())
    })
}
