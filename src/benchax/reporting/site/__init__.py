"""A site of a store's history: static pages that share styles and scripts, opened from disk or by any server."""
