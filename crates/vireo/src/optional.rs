//! Commands of Cargo features. A build without the feature refuses the command.

/// Declares the module of a command that this build refuses.
#[cfg(not(all(feature = "lab", feature = "bench", feature = "experiment")))]
macro_rules! refused {
    ($command:ident, $feature:literal $(, $more:ty)?) => {
        pub(crate) mod $command {
            use std::ffi::OsString;
            use vireo_config::Failure;

            /// Any arguments: the refusal is about the command.
            #[derive(Debug, clap::Args)]
            #[command(disable_help_flag = true)]
            pub(crate) struct Args {
                #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
                _arguments: Vec<OsString>,
            }

            pub(crate) fn run(_: &Args $(, _: $more)?) -> Result<(), Failure> {
                let command = stringify!($command);
                Err(Failure(format!(
                    "{command}: this build lacks the feature {0}; build with --features {0}",
                    $feature
                )))
            }
        }
    };
}

#[cfg(not(feature = "bench"))]
refused!(bench, "bench", &str);
#[cfg(not(feature = "lab"))]
refused!(demo, "lab");
#[cfg(not(feature = "experiment"))]
refused!(experiment, "experiment", &str);
#[cfg(not(feature = "experiment"))]
refused!(plan, "experiment");

#[cfg(feature = "experiment")]
pub(crate) use crate::plan;
#[cfg(feature = "bench")]
pub(crate) use vireo_bench as bench;
#[cfg(feature = "experiment")]
pub(crate) use vireo_experiments as experiment;
#[cfg(feature = "lab")]
pub(crate) use vireo_lab::demo;
