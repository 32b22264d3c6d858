"""Program + events -> matches. numpy, Arrow and numba only; no language, no Spark."""
