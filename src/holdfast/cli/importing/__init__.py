"""Jobs of other systems, for `holdfast import`.

found       what a reader yields, and how that becomes jobs: each once
readers     the table of readers, one for each system
"""
