//! Options that keep a part of what is recorded: the last seconds, a ring of traces, a service's directory.

use clap::Args;

use super::FLIGHT;
use crate::flight;
use crate::rotation::RotationOptions;
use crate::service::ServiceOptions;

/// What is kept of a long recording.
#[derive(Debug, Clone, Args)]
pub(crate) struct RetentionOptions {
    #[command(flatten, next_help_heading = FLIGHT)]
    pub(crate) flight: flight::Options,
    #[command(flatten, next_help_heading = FLIGHT)]
    pub(crate) rotation: RotationOptions,
    #[command(flatten, next_help_heading = FLIGHT)]
    pub(crate) service: ServiceOptions,
}
