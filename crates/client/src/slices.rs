//! Requests to the API about slices and the placement of users.

use crate::api::{Answer, Api};
use vireo_config::Failure;
use vireo_ops::api::{MoveResult, SlicesStatus, Status, UeStatus};

/// Requests a migration of users; `query` is the query of the API.
pub fn move_users(api: &Api, query: &str) -> Result<MoveResult, Failure> {
    match api.request("POST", &format!("/slices/move?{query}"))? {
        Answer { status: 200, body, .. } => Ok(serde_json::from_str(&body)?),
        Answer { status: 400 | 404, body, .. } if !body.trim().is_empty() => Err(Failure(body.trim().to_owned())),
        Answer { line, body, .. } => Err(Failure(format!("{api} answers '{line}' {}", body.trim()))),
    }
}

/// Requests the migration of the user of an address. Returns `None` if no user has the address.
pub fn move_user(api: &Api, address: &str, to: &str) -> Result<Option<MoveResult>, Failure> {
    match api.request("POST", &format!("/slices/move?address={address}&to={to}"))? {
        Answer { status: 200, body, .. } => Ok(Some(serde_json::from_str(&body)?)),
        Answer { status: 404, .. } => Ok(None),
        Answer { line, body, .. } => Err(Failure(format!("{api} answers '{line}' {}", body.trim()))),
    }
}

/// Returns the slices from the API.
pub fn list(api: &Api) -> Result<SlicesStatus, Failure> {
    Ok(serde_json::from_str(&api.fetch("/slices")?)?)
}

/// UEs per API request.
const PAGE: usize = 1000;

/// Calls `more` for each UE of a core, page by page, until it returns false.
pub fn each_ue(api: &Api, mut more: impl FnMut(&UeStatus) -> bool) -> Result<(), Failure> {
    for offset in (0..).step_by(PAGE) {
        let page = api.fetch(&format!("/status?offset={offset}&limit={PAGE}&reveal_supi=true"))?;
        let status: Status = serde_json::from_str(&page)?;
        if !status.ues.iter().all(&mut more) || offset + status.ues.len() >= status.counts.ues || status.ues.is_empty()
        {
            break;
        }
    }
    Ok(())
}

/// Orders the relocation of a subscriber's sessions. Returns true if the core knows such a UE.
pub fn relocate(api: &Api, supi: &str, upf: &str) -> Result<bool, Failure> {
    match api.request("POST", &format!("/sessions/move?supi={supi}&to={upf}"))? {
        Answer { status: 202, .. } => Ok(true),
        Answer { status: 404, body, .. } if body.starts_with("no such UE") => Ok(false),
        Answer { status: 400 | 404 | 503, body, .. } if !body.trim().is_empty() => Err(Failure(body.trim().to_owned())),
        Answer { line, body, .. } => Err(Failure(format!("{api} answers '{line}' {}", body.trim()))),
    }
}

/// Returns the slices with the packet counts of the users' entries.
pub fn list_with_counts(api: &Api) -> Result<SlicesStatus, Failure> {
    Ok(serde_json::from_str(&api.fetch("/slices?counts=true")?)?)
}
