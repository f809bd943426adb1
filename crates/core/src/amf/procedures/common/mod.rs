//! Parts that several procedures use.
//!
//! - [`areas`]: forbidden and service areas
//! - [`service`]: contents of a service request
//! - [`security_setup`]: identification, authentication and key agreement
//! - [`context_setup`]: UE context in the RAN
//! - [`user_plane`]: delivery of the output of session steps
//! - [`smf_requests`]: requests to a separate SMF
//! - [`congestion`]: rejection of UEs during overload
//! - [`emm`]: parts of EMM messages
//! - [`gmm`]: parts of 5GMM messages
//! - [`guti`]: assignment of GUTIs
//! - [`moves`]: a UE that comes from the other dialect
//! - [`network_information`]: name and local time of the network
//! - [`power_saving`]: power saving and extended DRX that a UE requests
//! - [`user_data`]: packets of a UE over NAS

pub mod areas;
pub mod configured_nssai;
pub mod congestion;
pub mod context_setup;
pub mod emm;
pub mod end_of_registration;
pub mod gmm;
pub mod guti;
pub mod moves;
pub mod network_information;
pub mod power_saving;
pub mod security_setup;
pub mod service;
pub mod session_conversion;
pub mod smf_requests;
pub mod user_data;
pub mod user_plane;
