//! Our SIPp command line compared with SIPp itself, in processes.

mod command_controllers;
mod command_process;
mod listening;
mod media_scenarios;
mod sipp_interop;
