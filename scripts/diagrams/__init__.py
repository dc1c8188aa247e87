"""The pictures of the pages: ``canvas`` draws shapes as SVG, ``pictures`` has each picture."""
