"""Which model: compound systems and the search for their allocation; cascades and model routers.

Module -> model: `systems` says what is built of which modules, `roles` what a module does, `worlds` and
`latent` what happens on every question, `searchers` find an allocation, `exhaustive` tries all, `costs` says
what they cost, `choose` does it all from a table::

    from fastsim.selection import latent, searchers, systems

    scene = latent.P1.draw(0, systems.get("debate"))
    found = searchers.search(scene.train, "llmselector", start=scene.start, rng=scene.rng)
    print(scene.train.named(found.allocation), scene.test.accuracy(found.allocation), found.evaluated)

Request -> model: `tables` and `read_tables` hold who answered what at which cost, `model_routers` and
`cascades` choose a model for each request, `compare_routers` compares them.
"""
