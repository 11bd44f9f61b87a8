//! SIPp's command line of ours beside SIPp itself, as processes.

mod command_controllers;
mod command_process;
mod listening;
mod media_scenarios;
mod sipp_interop;
