mod metrics_catalogue;
